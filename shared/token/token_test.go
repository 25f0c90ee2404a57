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

// The vectors were made by the command in the package comment, those without a
// life by that of earlier releases, which printed the id alone.
func TestDeriveLikeOpenSSL(t *testing.T) {
	body, err := os.ReadFile("testdata/openssl.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Secret    string `json:"secret"`
		MachineID string `json:"machine_id"`
		Life      string `json:"life"`
		Token     string `json:"token"`
	}
	if err := json.Unmarshal(body, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) == 0 {
		t.Fatal("no vectors")
	}
	for _, v := range vectors {
		got := token.DerivePlain(secret(t, v.Secret), v.MachineID)
		if v.Life != "" {
			got = token.Derive(secret(t, v.Secret), v.MachineID, v.Life)
		}
		if got != v.Token {
			t.Errorf("token of %q in life %q is %s, openssl says %s", v.MachineID, v.Life, got, v.Token)
		}
	}
}

func TestVerify(t *testing.T) {
	s := secret(t, secretText)
	const life = "op-1"
	// This id's token has both + and / in the standard alphabet, so that the
	// alphabets differ.
	id := idWith(t, s, life, "+", "/")
	std := token.Derive(s, id, life)
	raw, err := base64.StdEncoding.DecodeString(std)
	if err != nil {
		t.Fatal(err)
	}
	last := std[len(std)-2]
	tests := []struct {
		name, id, life, presented string
		ok                        bool
	}{
		{"standard", id, life, std, true},
		{"standard unpadded", id, life, base64.RawStdEncoding.EncodeToString(raw), true},
		{"URL", id, life, base64.URLEncoding.EncodeToString(raw), true},
		{"URL unpadded", id, life, base64.RawURLEncoding.EncodeToString(raw), true},
		{"wrong machine", id + "x", life, std, false},
		{"another life", id, "op-2", std, false},
		{"no life", id, "", std, false},
		{"the plain token", id, life, token.DerivePlain(s, id), false},
		{"parts that join to the same text", id + life[:1], life[1:], std, false},
		{"wrong secret", id, life, token.Derive(secret(t, strings.ToUpper(secretText)), id, life), false},
		{"empty", id, life, "", false},
		{"only padding", id, life, "====", false},
		{"too much padding", id, life, std + "=", false},
		{"not base64", id, life, strings.Repeat("!", len(std)), false},
		{"shorter", id, life, std[:40], false},
		{"longer", id, life, base64.StdEncoding.EncodeToString(append(raw, 0)), false},
		{"line break inside", id, life, std[:20] + "\n" + std[20:], false},
		{"space around", id, life, " " + std, false},
		{"another spelling of the last bits", id, life, std[:len(std)-2] + string(last+1) + "=", false},
		{"hex of the same bytes", id, life, fmt.Sprintf("%x", raw), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := token.Verify(s, tt.id, tt.life, tt.presented)
			if tt.ok && err != nil || !tt.ok && !errors.Is(err, token.ErrMismatch) {
				t.Errorf("Verify = %v, want ok %t", err, tt.ok)
			}
		})
	}
}

func TestVerifyPlain(t *testing.T) {
	s := secret(t, secretText)
	if err := token.VerifyPlain(s, "m", token.DerivePlain(s, "m")); err != nil {
		t.Error(err)
	}
	for what, presented := range map[string]string{
		"of a life": token.Derive(s, "m", "op-1"), "of the life without an id": token.Derive(s, "m", ""),
		"another machine's": token.DerivePlain(s, "n"), "nothing": "",
	} {
		if err := token.VerifyPlain(s, "m", presented); !errors.Is(err, token.ErrMismatch) {
			t.Errorf("a token %s: %v", what, err)
		}
	}
}

// idWith finds a machine id whose token has all the given characters.
func idWith(t *testing.T, s token.Secret, life string, chars ...string) string {
	t.Helper()
next:
	for i := range 10000 {
		id := fmt.Sprintf("m-%d", i)
		for _, c := range chars {
			if !strings.Contains(token.Derive(s, id, life), c) {
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
	want := token.DerivePlain(s, "m")
	raw[0] = 'X'
	if token.DerivePlain(s, "m") != want {
		t.Error("the caller's slice is the key")
	}
}

// FuzzVerify holds that nothing verifies but the 32 bytes of the machine's own
// token, in whatever base64.
func FuzzVerify(f *testing.F) {
	s := secret(f, secretText)
	good := token.Derive(s, "m", "op-1")
	for _, seed := range []string{good, strings.TrimRight(good, "="), "", "=", good + "\n", good[:10], "\x00", strings.Repeat("A", 43)} {
		f.Add("m", "op-1", seed)
	}
	f.Add("n", "op-1", good)
	f.Add("m", "op-2", good)
	f.Fuzz(func(t *testing.T, id, life, presented string) {
		ok := token.Verify(s, id, life, presented) == nil
		text := strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(presented, "="))
		if same := text == strings.TrimRight(token.Derive(s, id, life), "="); ok && !same {
			t.Errorf("Verify(%q, %q, %q) accepts a foreign token", id, life, presented)
		}
		if raw, err := token.Decode(presented); err == nil && len(raw) != 32 {
			t.Errorf("Decode(%q) has %d bytes", presented, len(raw))
		}
	})
}
