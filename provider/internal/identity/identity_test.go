package identity_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"strings"
	"testing"

	"bigfleet-providers/provider/internal/identity"
)

// certificate has the URIs among its names, spelled as they are.
func certificate(t testing.TB, uris ...string) *x509.Certificate {
	t.Helper()
	names := []asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: 2, Bytes: []byte("host.example")}}
	for _, uri := range uris {
		names = append(names, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 6, Bytes: []byte(uri)})
	}
	value, err := asn1.Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	return &x509.Certificate{Extensions: []pkix.Extension{
		{Id: asn1.ObjectIdentifier{2, 5, 29, 15}, Value: []byte{3, 2, 7, 128}}, // key usage, no list
		{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: value},
	}}
}

func TestOf(t *testing.T) {
	shard := func(id string) identity.Identity {
		return identity.Identity{Role: identity.Shard, Shard: id, URI: "bigfleet://shard/" + id}
	}
	for uri, want := range map[string]identity.Identity{
		"bigfleet://shard/a":                 shard("a"),
		"bigfleet://shard/a/b":               shard("a/b"),
		"bigfleet://shard/eu-1.shard_0~x":    shard("eu-1.shard_0~x"),
		"bigfleet://shard/a:b@c+d=e":         shard("a:b@c+d=e"),
		"bigfleet://shard/..a":               shard("..a"),
		"bigfleet://shard/A":                 shard("A"), // ids differ by case
		"bigfleet://readonly":                {Role: identity.Reader, URI: "bigfleet://readonly"},
		"bigfleet://admin":                   {Role: identity.Reader, URI: "bigfleet://admin"},
		"spiffe://mesh/bigfleet://shard/a":   {},
		"bigfleets://shard/a":                {},
		"https://bigfleet.example/shard/a#b": {},
	} {
		if got, err := identity.Of(certificate(t, uri)); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", uri, got, err, want)
		}
	}
}

// TestOtherSpellings: each could be read as an identity that has another
// spelling.
func TestOtherSpellings(t *testing.T) {
	var spellings []string
	for _, good := range []string{"bigfleet://shard/a", "bigfleet://readonly", "bigfleet://admin"} {
		host, path, _ := strings.Cut(strings.TrimPrefix(good, "bigfleet://"), "/")
		if path != "" {
			path = "/" + path
		}
		spellings = append(spellings,
			good+"#", good+"#b", good+"?", good+"?x=1", good+"/", good+"//", good+"/.", good+"/..", good+"/./", good+"%20", good+" ", good+"\n", good+"\x00", good+"é", good+`\`,
			"BIGFLEET://"+host+path, "Bigfleet://"+host+path, "bigfleet://"+strings.ToUpper(host)+path, "bigfleet:"+host+path, "bigfleet:/"+host+path, "bigfleet:///"+host+path,
			"bigfleet://u@"+host+path, "bigfleet://u:p@"+host+path, "bigfleet://@"+host+path, "bigfleet://"+host+":"+path, "bigfleet://"+host+":9000"+path, "bigfleet://"+host+"."+path,
			"bigfleet://%"+"61dmin"+path, "bigfleet://"+host+"/."+path, "bigfleet://"+host+"/x/.."+path)
	}
	spellings = append(spellings, "bigfleet:", "bigfleet://", "bigfleet://shard", "bigfleet://shard/", "bigfleet://shard//a", "bigfleet://shard/%61", "bigfleet://shard/a%2Fb",
		"bigfleet://shard/a//b", "bigfleet://shard/./a", "bigfleet://shard/b/../a", "bigfleet://shard/.", "bigfleet://shard/..", "bigfleet://root", "bigfleet://readonly/x")
	for _, uri := range spellings {
		if got, err := identity.Of(certificate(t, uri)); err == nil {
			t.Errorf("%q is taken for %+v", uri, got)
		}
		if got, err := identity.Of(certificate(t, "spiffe://x/y", uri)); err == nil {
			t.Errorf("%q beside another's URI is taken for %+v", uri, got)
		}
	}
}

func TestSeveral(t *testing.T) {
	for _, uris := range [][]string{
		{"bigfleet://shard/a", "bigfleet://shard/b"}, {"bigfleet://shard/a", "bigfleet://shard/a"},
		{"bigfleet://shard/a", "BIGFLEET://readonly"}, {"bigfleet://readonly", "bigfleet:x"},
	} {
		if got, err := identity.Of(certificate(t, uris...)); err == nil {
			t.Errorf("%q are taken for %+v", uris, got)
		}
	}
	if got, err := identity.Of(&x509.Certificate{}); err != nil || got != (identity.Identity{}) {
		t.Errorf("without names: %+v, %v", got, err)
	}
	broken := certificate(t, "bigfleet://shard/a")
	broken.Extensions[1].Value = append(broken.Extensions[1].Value, 0)
	if got, err := identity.Of(broken); err == nil {
		t.Errorf("names that cannot be read are taken for %+v", got)
	}
}

// FuzzOf: whatever URI a certificate carries, it is a shard only as that URI
// spells it, byte for byte.
func FuzzOf(f *testing.F) {
	for _, uri := range []string{
		"bigfleet://shard/s", "bigfleet://readonly", "bigfleet://admin/", "bigfleet://shard/a%2Fb", "bigfleet://shard//", "bigfleet:shard/s",
		"BIGFLEET://shard/s", "bigfleet://Shard/s", "bigfleet://shard:1/s", "bigfleet://u@shard/s", "bigfleet://shard/s?", "bigfleet://shard/s#", "spiffe://x/y", "bigfleet://shard/%00",
	} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		got, err := identity.Of(certificate(t, uri))
		ours := strings.HasPrefix(strings.ToLower(uri), "bigfleet:")
		switch {
		case err != nil:
			if got != (identity.Identity{}) || !ours {
				t.Errorf("%q: %+v beside %v", uri, got, err)
			}
			return
		case (got.Role == identity.None) == ours:
			t.Errorf("%q has role %d", uri, got.Role)
		case (got.Role == identity.Shard) != (got.Shard != ""):
			t.Errorf("%q: %+v", uri, got)
		case got.Role == identity.Shard && uri != "bigfleet://shard/"+got.Shard:
			t.Errorf("%q is shard %q", uri, got.Shard)
		case got.Role == identity.Reader && uri != "bigfleet://readonly" && uri != "bigfleet://admin":
			t.Errorf("%q is a reader", uri)
		}
		if ours {
			if _, err := identity.Of(certificate(t, uri, uri)); err == nil {
				t.Errorf("%q twice is taken", uri)
			}
		}
	})
}
