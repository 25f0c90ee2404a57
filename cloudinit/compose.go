package cloudinit

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
)

// compose joins the operator's parts and ours, see the package comment.
func compose(base []*part, ours document) ([]byte, error) {
	config, err := ours.render()
	if err != nil {
		return nil, err
	}
	parts := append(slices.Clone(base),
		textPart(typeConfig, "bigfleet-agent.yaml", config),
		textPart(typeScript, startName, []byte("#!/bin/sh\n"+start(ours.WriteFiles))))

	// The boundary comes from the content, so that the result is reproducible
	// and no content can hold it.
	sum := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(sum, "%d %d\n%s%s", len(p.header), len(p.body), p.header, p.body)
	}
	boundary := fmt.Sprintf("bigfleet-%x", sum.Sum(nil)[:16])

	var out bytes.Buffer
	// cloud-init takes it for MIME only if MIME-Version is in the first 4 KiB.
	fmt.Fprintf(&out, "Content-Type: multipart/mixed; boundary=%q\nMIME-Version: 1.0\n\n", boundary)
	for _, p := range parts {
		fmt.Fprintf(&out, "--%s\n%s\n\n%s\n", boundary, p.header, p.body)
	}
	fmt.Fprintf(&out, "--%s--\n", boundary)
	return out.Bytes(), nil
}

// textPart makes a part of plain text. ASCII stays readable; anything else
// goes as base64, which no relay can damage.
func textPart(mediaType, name string, content []byte) *part {
	charset, encoding := "us-ascii", "7bit"
	body := content
	for _, b := range content {
		if b >= 0x80 {
			charset, encoding, body = "utf-8", "base64", base64Lines(content)
			break
		}
	}
	h := fmt.Sprintf("Content-Type: %s; charset=%q\nContent-Transfer-Encoding: %s", mediaType, charset, encoding)
	if name != "" {
		h += fmt.Sprintf("\nContent-Disposition: attachment; filename=%q", name)
	}
	return &part{header: h, body: body}
}

// base64Lines encodes in lines of 76, the longest that MIME allows.
func base64Lines(content []byte) []byte {
	text := base64.StdEncoding.EncodeToString(content)
	var out bytes.Buffer
	for len(text) > 76 {
		out.WriteString(text[:76] + "\n")
		text = text[76:]
	}
	out.WriteString(text)
	return out.Bytes()
}
