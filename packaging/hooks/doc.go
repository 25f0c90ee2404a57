// Package hooks holds the shell scripts that the agent's package installs into
// /usr/lib/bigfleet-agent: the hooks bootstrap (the default), kubeadm and k3s,
// and clean-network, which two of them share. There is no Go in it but the
// tests, which run them under dash.
package hooks
