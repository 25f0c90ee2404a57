package token_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"bigfleet-providers/shared/token"
)

const secretText = "0123456789abcdef0123456789abcdef"

func secret(t testing.TB, text string) token.Secret {
	t.Helper()
	s, err := token.NewSecret([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The vectors were made by the command in the package comment.
func TestDeriveLikeOpenSSL(t *testing.T) {
	body, err := os.ReadFile("testdata/openssl.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Secret    string `json:"secret"`
		MachineID string `json:"machine_id"`
		Token     string `json:"token"`
	}
	if err := json.Unmarshal(body, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) == 0 {
		t.Fatal("no vectors")
	}
	for _, v := range vectors {
		if got := token.Derive(secret(t, v.Secret), v.MachineID); got != v.Token {
			t.Errorf("token of %q is %s, openssl says %s", v.MachineID, got, v.Token)
		}
	}
}

func TestVerify(t *testing.T) {
	s := secret(t, secretText)
	// This id's token has both + and / in the standard alphabet, so that the
	// alphabets differ.
	id := idWith(t, s, "+", "/")
	std := token.Derive(s, id)
	raw, err := base64.StdEncoding.DecodeString(std)
	if err != nil {
		t.Fatal(err)
	}
	last := std[len(std)-2]
	tests := []struct {
		name, id, presented string
		ok                  bool
	}{
		{"standard", id, std, true},
		{"standard unpadded", id, base64.RawStdEncoding.EncodeToString(raw), true},
		{"URL", id, base64.URLEncoding.EncodeToString(raw), true},
		{"URL unpadded", id, base64.RawURLEncoding.EncodeToString(raw), true},
		{"wrong machine", id + "x", std, false},
		{"wrong secret", id, token.Derive(secret(t, strings.ToUpper(secretText)), id), false},
		{"empty", id, "", false},
		{"only padding", id, "====", false},
		{"too much padding", id, std + "=", false},
		{"not base64", id, strings.Repeat("!", len(std)), false},
		{"shorter", id, std[:40], false},
		{"longer", id, base64.StdEncoding.EncodeToString(append(raw, 0)), false},
		{"line break inside", id, std[:20] + "\n" + std[20:], false},
		{"space around", id, " " + std, false},
		{"another spelling of the last bits", id, std[:len(std)-2] + string(last+1) + "=", false},
		{"hex of the same bytes", id, fmt.Sprintf("%x", raw), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := token.Verify(s, tt.id, tt.presented)
			if tt.ok && err != nil || !tt.ok && !errors.Is(err, token.ErrMismatch) {
				t.Errorf("Verify = %v, want ok %t", err, tt.ok)
			}
		})
	}
}

// idWith finds a machine id whose token has all the given characters.
func idWith(t *testing.T, s token.Secret, chars ...string) string {
	t.Helper()
next:
	for i := range 10000 {
		id := fmt.Sprintf("m-%d", i)
		for _, c := range chars {
			if !strings.Contains(token.Derive(s, id), c) {
				continue next
			}
		}
		return id
	}
	t.Fatal("no such id")
	return ""
}

func TestNewSecret(t *testing.T) {
	tests := []struct {
		name, raw, key string
	}{
		{"exact", secretText, secretText},
		{"line breaks are part of it", secretText + "\r\n", secretText + "\r\n"},
		{"spaces are part of it", " " + secretText, " " + secretText},
		{"one too short", secretText[1:], ""},
		{"empty", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := token.NewSecret([]byte(tt.raw))
			if tt.key == "" {
				if err == nil {
					t.Fatal("accepted")
				}
				if len(tt.raw) > 1 && strings.Contains(err.Error(), strings.TrimSpace(tt.raw)) {
					t.Errorf("the error holds the secret: %v", err)
				}
				return
			}
			if err != nil || string(s.Bytes()) != tt.key {
				t.Errorf("NewSecret = %q, %v, want %q", s.Bytes(), err, tt.key)
			}
		})
	}
}

func TestSecretDoesNotPrint(t *testing.T) {
	s := secret(t, secretText)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if text := fmt.Sprintf(verb, s); strings.Contains(text, secretText) {
			t.Errorf("%s prints the secret: %s", verb, text)
		}
	}
	body, err := json.Marshal(map[string]any{"secret": s})
	if err != nil || strings.Contains(string(body), secretText) {
		t.Errorf("JSON of a secret: %s, %v", body, err)
	}
}

func TestSecretIsACopy(t *testing.T) {
	raw := []byte(secretText)
	s, err := token.NewSecret(raw)
	if err != nil {
		t.Fatal(err)
	}
	want := token.Derive(s, "m")
	raw[0] = 'X'
	if token.Derive(s, "m") != want {
		t.Error("the caller's slice is the key")
	}
}

// FuzzVerify holds that nothing verifies but the 32 bytes of the machine's own
// token, in whatever base64.
func FuzzVerify(f *testing.F) {
	s := secret(f, secretText)
	good := token.Derive(s, "m")
	for _, seed := range []string{good, strings.TrimRight(good, "="), "", "=", good + "\n", good[:10], "\x00", strings.Repeat("A", 43)} {
		f.Add("m", seed)
	}
	f.Add("n", good)
	f.Fuzz(func(t *testing.T, id, presented string) {
		ok := token.Verify(s, id, presented) == nil
		text := strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(presented, "="))
		if same := text == strings.TrimRight(token.Derive(s, id), "="); ok && !same {
			t.Errorf("Verify(%q, %q) accepts a foreign token", id, presented)
		}
		if raw, err := token.Decode(presented); err == nil && len(raw) != 32 {
			t.Errorf("Decode(%q) has %d bytes", presented, len(raw))
		}
	})
}
