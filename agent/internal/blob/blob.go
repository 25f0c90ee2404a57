// Package blob reads bootstrap blobs for the shipped hooks: it understands the
// whole of a format or refuses it, and writes what it understood in the one form
// that cloud-init, kubeadm or k3s reads. Nothing is left out silently, and no
// error quotes a value.
package blob

import (
	"bytes"
	"errors"
)

// Text returns the text of a blob without a byte order mark and with LF at the
// end of each line. It is the one rule for all that the shipped hooks read. What
// has a NUL byte is no text, such as a script with a payload behind it: there
// only the mark goes.
func Text(body []byte) ([]byte, error) {
	if bytes.HasPrefix(body, []byte("\xff\xfe")) || bytes.HasPrefix(body, []byte("\xfe\xff")) {
		return nil, errors.New("the blob is in UTF-16: write it in UTF-8")
	}
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	if bytes.IndexByte(body, 0) >= 0 {
		return body, nil
	}
	body = bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n"))
	return bytes.TrimSuffix(body, []byte("\r")), nil
}
