package pemfile_test

import (
	"os"
	"strings"
	"testing"

	"bigfleet-providers/shared/pemfile"
)

// publicKey is a key as gpg exports it.
func publicKey(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("testdata/key.asc")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestPublicKeys(t *testing.T) {
	key := publicKey(t)
	sum := strings.LastIndex(key, "\n=") + 1
	for name, text := range map[string]string{
		"gpg's":              key,
		"two":                key + "\n" + key,
		"CRLF":               strings.ReplaceAll(key, "\n", "\r\n"),
		"without a checksum": key[:sum] + key[sum+6:],
		"with a header":      strings.Replace(key, "-----\n", "-----\nVersion: GnuPG v2\nComment: https://repo.example\n", 1),
	} {
		if blocks, err := pemfile.PublicKeys([]byte(text)); err != nil || len(blocks) != strings.Count(text, "BEGIN") {
			t.Errorf("%s: %d keys, %v", name, len(blocks), err)
		}
	}
	cert, _ := issued(t, "a")
	for name, text := range map[string]string{
		"none":                        "# key\n",
		"a certificate":               cert,
		"a certificate beside it":     key + cert,
		"a secret key":                strings.ReplaceAll(key, "PUBLIC", "PRIVATE"),
		"a signature by another name": strings.Replace(key, "\nmD", "\niQ", 1)[:sum] + key[sum+6:],
		"one character is another":    strings.Replace(key, key[200:201], "/", 1),
		"another checksum":            key[:sum] + "=AAAA" + key[sum+5:],
		"text behind the checksum":    key[:sum+6] + "AAAA\n" + key[sum+6:],
		"bad base64":                  key[:200] + "!" + key[201:],
		"a damaged one before it":     key[1:] + key,
		"an indented one after it":    key + " " + key,
		"cut":                         key[:sum],
	} {
		if blocks, err := pemfile.PublicKeys([]byte(text)); err == nil {
			t.Errorf("%s: %d keys are read of\n%s", name, len(blocks), text)
		}
	}
}
