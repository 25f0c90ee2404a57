// Package identity reads who a client certificate says its holder is: the one URI
// among its subject alternative names that begins with bigfleet:.
//
// An identity has one spelling. A URI that another program could read as the same
// identity, such as one with a fragment, percent-encoding or another case, is
// refused: a certificate authority may read it in another way than we do.
package identity

import (
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Role is what a client certificate may do.
type Role int

// The roles. The zero value is a certificate without an identity.
const (
	None   Role = iota
	Shard       // may read, and change machines under its own shard id
	Reader      // may only read
)

// Identity is who a certificate says its holder is.
type Identity struct {
	Role  Role
	Shard string // its id, of a Shard
	URI   string // "" without one
}

// Forms are the spellings of an identity, for messages.
const Forms = "bigfleet://shard/ID, bigfleet://readonly or bigfleet://admin"

const scheme = "bigfleet:"

// shardURI has in its id what RFC 3986 allows in a path, without percent-encoding
// and without empty segments.
var shardURI = regexp.MustCompile(`^bigfleet://shard/([A-Za-z0-9._~!$&'()*+,;=:@-]+(?:/[A-Za-z0-9._~!$&'()*+,;=:@-]+)*)$`)

// Of returns the identity in a certificate. It is an error if there are several
// or if the one is not spelled as Forms says; then the certificate may do nothing.
func Of(cert *x509.Certificate) (Identity, error) {
	all, err := uris(cert)
	if err != nil {
		return Identity{}, err
	}
	ours := slices.DeleteFunc(all, func(uri string) bool {
		return len(uri) < len(scheme) || !strings.EqualFold(uri[:len(scheme)], scheme)
	})
	switch len(ours) {
	case 0:
		return Identity{}, nil
	case 1:
		return parse(ours[0])
	default:
		return Identity{}, fmt.Errorf("%d bigfleet:// identities %q; want exactly one", len(ours), ours)
	}
}

func parse(uri string) (Identity, error) {
	switch uri {
	case "bigfleet://readonly", "bigfleet://admin":
		return Identity{Role: Reader, URI: uri}, nil
	}
	m := shardURI.FindStringSubmatch(uri)
	if len(m) == 0 || slices.ContainsFunc(strings.Split(m[1], "/"), func(s string) bool { return s == "." || s == ".." }) {
		return Identity{}, fmt.Errorf("identity %q; want exactly %s, with no user, port, query, fragment, percent-encoding, dot segment or trailing slash, in this case", uri, Forms)
	}
	return Identity{Role: Shard, Shard: m[1], URI: uri}, nil
}

var subjectAltName = asn1.ObjectIdentifier{2, 5, 29, 17}

// uriTag is the tag of a URI among the general names of RFC 5280, 4.2.1.6.
const uriTag = 6

// uris returns the URI names as they stand in the certificate. Those in
// x509.Certificate.URIs have lost an empty fragment and the case of the scheme.
func uris(cert *x509.Certificate) ([]string, error) {
	var list []string
	for _, ext := range cert.Extensions {
		if !ext.Id.Equal(subjectAltName) {
			continue
		}
		var names []asn1.RawValue
		if rest, err := asn1.Unmarshal(ext.Value, &names); err != nil || len(rest) > 0 {
			return nil, errors.New("subject alternative names that cannot be read")
		}
		for _, n := range names {
			if n.Class == asn1.ClassContextSpecific && n.Tag == uriTag {
				list = append(list, string(n.Bytes))
			}
		}
	}
	return list, nil
}
