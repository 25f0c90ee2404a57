package pemfile_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"bigfleet-providers/shared/pemfile"
)

// issued makes a certificate and its key, as PEM.
func issued(t testing.TB, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}

const begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"

// damages are what happens to the text of a block on its way into a file. Each
// has encoding/pem skip the block, or take what follows it for its own.
var damages = map[string]func(block string) string{
	"bad base64":    func(b string) string { return strings.Replace(b, "\nMII", "\nM!I", 1) },
	"a line is cut": func(b string) string { return b[:100] + b[103:] },
	"a line is missing": func(b string) string {
		lines := strings.SplitAfter(b, "\n")
		return strings.Join(append(lines[:2:2], lines[3:]...), "")
	},
	"four dashes before BEGIN": func(b string) string { return b[1:] },
	"one dash before BEGIN":    func(b string) string { return b[4:] },
	"no dash before BEGIN":     func(b string) string { return b[5:] },
	"six dashes before BEGIN":  func(b string) string { return "-" + b },
	"four dashes after BEGIN":  func(b string) string { return strings.Replace(b, begin, begin[:len(begin)-1], 1) },
	"six dashes after BEGIN":   func(b string) string { return strings.Replace(b, begin, begin+"-", 1) },
	"four dashes before END":   func(b string) string { return strings.Replace(b, end, end[1:], 1) },
	"four dashes after END":    func(b string) string { return strings.Replace(b, end, end[:len(end)-1], 1) },
	"typographic dashes":       func(b string) string { return strings.ReplaceAll(b, "-----", "—–-") },
	"indented": func(b string) string {
		return "  " + strings.ReplaceAll(strings.TrimSuffix(b, "\n"), "\n", "\n  ") + "\n"
	},
	"BEGIN indented by a tab":  func(b string) string { return "\t" + b },
	"text before BEGIN":        func(b string) string { return "ca.crt: " + b },
	"text behind BEGIN":        func(b string) string { return strings.Replace(b, begin, begin+" # mine", 1) },
	"text behind END":          func(b string) string { return strings.Replace(b, end, end+" # mine", 1) },
	"a comment sign":           func(b string) string { return "# " + b },
	"lower case":               func(b string) string { return strings.ToLower(begin) + strings.TrimPrefix(b, begin) },
	"no space behind BEGIN":    func(b string) string { return strings.Replace(b, "BEGIN ", "BEGIN", 1) },
	"two spaces behind BEGIN":  func(b string) string { return strings.Replace(b, "BEGIN ", "BEGIN  ", 1) },
	"a space before BEGIN":     func(b string) string { return strings.Replace(b, "-BEGIN", "- BEGIN", 1) },
	"a no-break space":         func(b string) string { return strings.Replace(b, "BEGIN ", "BEGIN\u00a0", 1) },
	"BEGIN on two lines":       func(b string) string { return strings.Replace(b, "BEGIN ", "BEGIN\n", 1) },
	"joined without a newline": func(b string) string { return strings.TrimSuffix(b, "\n") },
	"two files joined":         func(b string) string { return strings.TrimSuffix(b, "\n") + b },
	"BEGIN is missing":         func(b string) string { return strings.TrimPrefix(b, begin+"\n") },
	"END is missing":           func(b string) string { return strings.TrimSuffix(b, end+"\n") },
	"END of another type":      func(b string) string { return strings.Replace(b, end, "-----END PUBLIC KEY-----", 1) },
	"BEGIN is cut":             func(string) string { return "-----BEG\n" },
	"cut in the middle":        func(b string) string { return b[:200] + "\n" },
	"all on one line":          func(b string) string { return strings.ReplaceAll(b, "\n", " ") + "\n" },
	"escaped line breaks":      func(b string) string { return strings.ReplaceAll(b, "\n", `\n`) + "\n" },
	"old line breaks":          func(b string) string { return strings.ReplaceAll(b, "\n", "\r") + "\n" },
	"byte order mark":          func(b string) string { return "\ufeff" + b },
	"empty":                    func(string) string { return begin + "\n" + end + "\n" },
	"no certificate":           func(string) string { return begin + "\nAAAA\n" + end + "\n" },
}

// TestDamageIsNotSkipped: whatever happens to one block of a bundle, before a good
// one, between two or after them, the bundle is refused.
func TestDamageIsNotSkipped(t *testing.T) {
	first, _ := issued(t, "first")
	victim, _ := issued(t, "victim")
	last, _ := issued(t, "last")
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			bad := damage(victim)
			for place, text := range map[string]string{"before": bad + last, "between": first + bad + last, "after": first + bad, "alone": bad} {
				if place == "after" || place == "alone" {
					if name == "joined without a newline" {
						continue // the end of a file is no damage
					}
				}
				list, err := pemfile.Certificates([]byte(text))
				if err == nil {
					t.Fatalf("%s: %d certificates are read from:\n%s", place, len(list), text)
				}
				if !strings.Contains(err.Error(), "line ") && !strings.Contains(err.Error(), "lines ") {
					t.Errorf("%s: the error names no line: %v", place, err)
				}
				if strings.Contains(err.Error(), bad[min(len(bad), 70):min(len(bad), 90)]) && len(bad) > 90 {
					t.Errorf("%s: the error quotes the file: %v", place, err)
				}
			}
		})
	}
}

// TestHarmless: what people and tools put around blocks is read.
func TestHarmless(t *testing.T) {
	a, key := issued(t, "a")
	b, _ := issued(t, "b")
	for name, text := range map[string]string{
		"plain":             a + b,
		"CRLF":              strings.ReplaceAll(a+b, "\n", "\r\n"),
		"blank lines":       "\n\n" + a + "\n \n" + b + "\n",
		"spaces at ends":    strings.ReplaceAll(a+b, "\n", "  \n"),
		"no last newline":   strings.TrimSuffix(a+b, "\n"),
		"openssl's text":    "Certificate:\n    Data:\n        Subject: CN=Back End Certificate\n" + a + "Bag Attributes\n    localKeyID: 01\n" + b,
		"ruled comments":    "# ---- Begin of the old roots ----\n=====\n----------\n" + a + "# -- end, key material is elsewhere --\n" + b,
		"long base64 lines": strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(a, "\n", ""), begin, begin+"\n"), end, "\n"+end+"\n") + b,
	} {
		if list, err := pemfile.Certificates([]byte(text)); err != nil || len(list) != 2 || list[0].Subject.CommonName != "a" || list[1].Subject.CommonName != "b" {
			t.Errorf("%s: %d certificates, %v", name, len(list), err)
		}
	}
	if list, err := pemfile.CertificatesOfPair([]byte(key + a)); err != nil || len(list) != 1 {
		t.Errorf("a pair in one file: %d, %v", len(list), err)
	}
	if _, err := pemfile.KeyPair("cert", "key", []byte(a), []byte(key)); err != nil {
		t.Error(err)
	}
}

func TestOtherBlocks(t *testing.T) {
	cert, key := issued(t, "a")
	trusted := strings.ReplaceAll(cert, "CERTIFICATE", "TRUSTED CERTIFICATE")
	for name, err := range map[string]error{
		"a bundle with a key":                second(pemfile.Certificates([]byte(cert + key))),
		"a bundle without anything":          second(pemfile.Certificates([]byte("# none\n"))),
		"a bundle with another form":         second(pemfile.Certificates([]byte(cert + trusted))),
		"a chain with another form":          second(pemfile.CertificatesOfPair([]byte(cert + trusted))),
		"a key's file without a key":         pemfile.CheckKey([]byte(cert)),
		"a damaged key before a good one":    pemfile.CheckKey([]byte(key[1:] + key)),
		"a pair whose chain is damaged":      second(pemfile.KeyPair("cert", "key", []byte(cert+cert[1:]), []byte(key))),
		"a pair whose key's file is damaged": second(pemfile.KeyPair("cert", "key", []byte(cert), []byte(key+key[:80]))),
		"a pool of a damaged bundle":         second(pemfile.Pool([]byte(cert[1:] + cert))),
	} {
		if err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// FuzzBlocks: what is read whole is what encoding/pem reads, and nothing that it
// would skip.
func FuzzBlocks(f *testing.F) {
	cert, key := issued(f, "a")
	for _, seed := range []string{"", cert, key + cert, cert[1:], "# x\n" + cert, cert[:100], publicKey(f)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		blocks, err := pemfile.Blocks(text)
		if err != nil {
			return
		}
		if n := bytes.Count(text, []byte("-----BEGIN")); n != len(blocks) {
			t.Fatalf("%d blocks are read, %d begin", len(blocks), n)
		}
		for i, b := range blocks {
			if strings.HasPrefix(b.Type, "PGP ") {
				return // encoding/pem reads no checksums
			}
			var want *pem.Block
			if want, text = pem.Decode(text); want == nil || want.Type != b.Type || !bytes.Equal(want.Bytes, b.Bytes) {
				t.Fatalf("block %d is %q, encoding/pem reads %v", i+1, b.Bytes, want)
			}
		}
	})
}
