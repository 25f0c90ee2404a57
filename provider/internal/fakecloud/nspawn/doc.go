// Package nspawn boots Debian guests with systemd and cloud-init in containers
// of this machine, by systemd-nspawn. It needs root.
//
// A Network is a bridge with addresses of its own; each Guest on it has a
// network namespace, a lease by DHCP, and a disk: an overlay over a Debian root
// that is shared and never written. What a real server has and a container has
// not is made up for: an address for the metadata service on the host's end, and
// a cgroup of its own in every hierarchy.
//
// Everything on this machine that is not a file carries the network's name.
// Mounts live in the guests' own namespace, processes die with the program that
// started them; names that a killed program leaves behind (bridge, namespaces,
// cgroups) are removed by the next OpenNetwork.
package nspawn
