package pemfile

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// PublicKeys reads a file of armoured OpenPGP public keys, such as an APT
// repository's.
func PublicKeys(text []byte) ([]Block, error) {
	blocks, err := Blocks(text)
	if err != nil {
		return nil, err
	}
	for i, b := range blocks {
		switch {
		case b.Type != "PGP PUBLIC KEY BLOCK":
			return nil, fmt.Errorf("block %d (line %d) is a %s; want PGP PUBLIC KEY BLOCK and nothing else", i+1, b.Line, b.Type)
		case !isPublicKey(b.Bytes[0]):
			return nil, fmt.Errorf("block %d (line %d) does not begin with an OpenPGP public key", i+1, b.Line)
		}
	}
	if len(blocks) == 0 {
		return nil, errors.New("holds no armoured OpenPGP public key; make one with: gpg --armor --export KEY")
	}
	return blocks, nil
}

// isPublicKey says whether a packet's first byte is a public key's, in the new or
// the old format: RFC 9580, 4.2.
func isPublicKey(first byte) bool {
	const publicKey = 6
	return first&0xC0 == 0xC0 && first&0x3F == publicKey || first&0xC0 == 0x80 && first>>2&0x0F == publicKey
}

// cutChecksum takes the checksum off the lines of an armoured block; "" if there
// is none.
func cutChecksum(body []string) (rest []string, sum string, err error) {
	for i, line := range body {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "=") {
			continue
		}
		if strings.TrimSpace(strings.Join(body[i+1:], "")) != "" {
			return body, "", errors.New("text follows its checksum")
		}
		return body[:i], line, nil
	}
	return body, "", nil
}

// checksum is the line that armour ends in: RFC 9580, 6.1.
func checksum(content []byte) string {
	crc := uint32(0xB704CE)
	for _, b := range content {
		crc ^= uint32(b) << 16
		for range 8 {
			crc <<= 1
			if crc&0x1000000 != 0 {
				crc ^= 0x1864CFB
			}
		}
	}
	return "=" + base64.StdEncoding.EncodeToString([]byte{byte(crc >> 16), byte(crc >> 8), byte(crc)})
}
