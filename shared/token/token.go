// Package token derives and verifies the bearer token that one machine's agent
// presents on the bootstrap channel.
//
// A token is base64(HMAC-SHA256(bootstrap secret, machine id, line feed, life)) in
// the standard alphabet with padding, so that an operator can check one with
//
//	printf '%s\n%s' "$ID" "$LIFE" | openssl dgst -sha256 -hmac "$SECRET" -binary | base64
//
// The life is the operation id of the machine's Create: ids are used again, and
// what a host of an earlier life holds must not open what the next one is sent.
// Earlier releases left the life out, which DerivePlain and VerifyPlain still do.
//
// Tokens are never stored by the provider: it derives them again on each
// request.
package token

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// MinSecretBytes is the shortest bootstrap secret that is accepted.
const MinSecretBytes = 32

// Secret is a bootstrap secret: the HMAC key of every token of one provider.
// Its zero value is not usable; make one with NewSecret.
type Secret struct{ key []byte }

// NewSecret takes the exact bytes of a secret. One that is shorter than
// MinSecretBytes is refused; the error does not contain it.
func NewSecret(key []byte) (Secret, error) {
	if len(key) < MinSecretBytes {
		return Secret{}, fmt.Errorf("the bootstrap secret has %d bytes, at least %d are needed (make one with: openssl rand -hex 32)", len(key), MinSecretBytes)
	}
	return Secret{key: append([]byte(nil), key...)}, nil
}

// Bytes returns the key material, for deriving other keys from it. The caller
// must not change it.
func (s Secret) Bytes() []byte { return s.key }

// String hides the secret from every fmt verb that prints a value.
func (s Secret) String() string { return "[redacted]" }

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return "token.Secret{[redacted]}" }

// Derive returns the machine's token in one of its lives. Neither id has a line
// feed in it, so no two pairs, and no pair and no plain id, have one token.
func Derive(s Secret, machineID, life string) string { return encode(s, message(machineID, life)) }

// DerivePlain returns the token that is the same in all lives of the machine.
func DerivePlain(s Secret, machineID string) string { return encode(s, machineID) }

// ErrMismatch says that a token is not the machine's. It does not say why, so
// that a caller cannot leak it either.
var ErrMismatch = errors.New("token does not belong to the machine")

// Verify checks a presented token against the machine's in one of its lives, in
// constant time. The presented text may use the standard or the URL alphabet,
// padded or not.
func Verify(s Secret, machineID, life, presented string) error {
	return verify(s, message(machineID, life), presented)
}

// VerifyPlain is Verify for what DerivePlain returns.
func VerifyPlain(s Secret, machineID, presented string) error {
	return verify(s, machineID, presented)
}

func message(machineID, life string) string { return machineID + "\n" + life }

func encode(s Secret, message string) string {
	return base64.StdEncoding.EncodeToString(sum(s, message))
}

func verify(s Secret, message, presented string) error {
	want := sum(s, message)
	got, err := Decode(presented)
	// The comparison runs on undecodable input too, so that bad base64 costs
	// the same work as a wrong token.
	if !hmac.Equal(want, got) || err != nil {
		return ErrMismatch
	}
	return nil
}

// ErrMalformed says that a text is not a token of any machine. It does not
// quote the text.
var ErrMalformed = fmt.Errorf("not a token: want %d bytes in base64", sha256.Size)

var oneAlphabet = strings.NewReplacer("-", "+", "_", "/")

// Decode returns the raw bytes of a token in any base64 alphabet, padded or
// not. It judges the form only; Verify judges the content.
func Decode(presented string) ([]byte, error) {
	text := strings.TrimSuffix(presented, "=")
	switch {
	case len(text) != base64.RawStdEncoding.EncodedLen(sha256.Size):
		return nil, ErrMalformed
	case strings.ContainsAny(text, "\r\n"): // the decoder would skip them
		return nil, ErrMalformed
	}
	raw, err := base64.RawStdEncoding.Strict().DecodeString(oneAlphabet.Replace(text))
	if err != nil {
		return nil, ErrMalformed
	}
	return raw, nil
}

func sum(s Secret, message string) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(message))
	return mac.Sum(nil)
}
