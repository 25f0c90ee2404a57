package main

import (
	"bytes"
	"encoding/pem"
	"errors"
	"strconv"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// config is how a container of the image runs. deploy/Dockerfile says the same.
func (img *image) config() v1.ImageConfig {
	return v1.ImageConfig{
		User:       strconv.Itoa(nonroot) + ":" + strconv.Itoa(nonroot),
		Entrypoint: []string{"/" + entryPoint},
		WorkingDir: "/home/nonroot",
		Env:        []string{"PATH=/usr/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"},
		ExposedPorts: map[string]struct{}{
			"9000/tcp": {}, // gRPC
			"9090/tcp": {}, // metrics and probes
			"9443/tcp": {}, // bootstrap channel
		},
		Labels: map[string]string{
			v1.AnnotationTitle:    "bigfleet-" + img.program,
			v1.AnnotationVersion:  img.version,
			v1.AnnotationLicenses: "MIT",
		},
	}
}

// trustedRoots returns, in PEM, the roots by which a cloud's API is verified:
// Mozilla's, pinned by go.sum. Roots that are trusted with a condition are left
// out, since a file of certificates cannot say it.
func trustedRoots() ([]byte, error) {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	if out.Len() == 0 {
		return nil, errors.New("the bundle of trusted roots is empty")
	}
	return out.Bytes(), nil
}
