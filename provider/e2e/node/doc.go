// Package node tests the shipped kubeadm hook on real nodes: control planes of
// etcd, API server, controller manager and scheduler on this machine, and
// containerd and kubelet in Debian guests that boot from the fake cloud's user
// data, get the agent from the channel, and join by the blob of a Configure.
// make e2e-node runs it.
package node
