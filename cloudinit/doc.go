// Package cloudinit renders the user data that a new machine boots with: it
// installs and starts the on-host agent and hands it the channel's address, the
// pinned CA, the machine's id and the machine's own token. It carries no secret
// of any cluster.
//
// Without user data of the operator's own the result is one #cloud-config.
// Otherwise it is a MIME multipart of three kinds of parts, in this order:
//
//	the operator's part               (each part of theirs, if it is a multipart)
//	text/cloud-config                 our write_files, with merge_how
//	text/x-shellscript                starts what the files above hold
//
// The order and the kinds follow from how cloud-init works. Cloud-config parts
// are merged one after the other, by the rule of the later one, and its default
// rule drops the lists of the earlier parts; only the last part can therefore
// protect both sides. Our write_files go in front of the operator's because the
// module stops at the first entry that fails, such as one whose owner does not
// exist yet. Our start is a script of its own and not a runcmd because all
// runcmd entries share one shell, which an operator's exit ends for everyone;
// its name sorts behind "runcmd", so that what the operator installs is there
// when the agent offers the machine.
//
// cloud-init takes a step for done before it begins it. So the files hold a
// systemd unit, too, which goes on with an installation at each boot until it
// has succeeded.
package cloudinit
