// Package endpoint reads addresses of servers, once and by one set of rules for
// all that dial them: the agent, the first boot's script, the operator's
// programs. What one of them would read in another way than the rest is written
// in one form or refused.
package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// URL reads the base URL of a server and returns it in one form: the host in
// small letters and without a dot at its end, which TLS libraries judge in
// different ways; no empty port; no slash at the end. Its errors quote host
// and port and no more of text, which may hold a password.
func URL(text string, schemes ...string) (*url.URL, error) {
	want := fmt.Sprintf("want %s://host[:port][/prefix]", strings.Join(schemes, ":// or "))
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("holds a space or a character that is not printable ASCII; %s", want)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil: // says what it could not read
		return nil, fmt.Errorf("not a URL with a host and a port from 1 to 65535; %s", want)
	case !slices.Contains(schemes, u.Scheme) || u.Hostname() == "":
		return nil, errors.New(want)
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, fmt.Errorf("has a user, a query or a fragment; %s", want)
	}
	host, err := checkHost(u.Hostname())
	if err != nil {
		return nil, err
	}
	port := u.Port()
	if port != "" {
		if port, err = checkPort(port); err != nil {
			return nil, err
		}
	}
	u = u.JoinPath()
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	switch {
	case port != "":
		u.Host = net.JoinHostPort(host, port)
	case strings.Contains(host, ":"):
		u.Host = "[" + host + "]"
	default:
		u.Host = host
	}
	return u, nil
}

// Check judges a base URL as URL does. Its error quotes the text, unless that may
// hold a password.
func Check(text string, schemes ...string) error {
	_, err := URL(text, schemes...)
	if err == nil || strings.Contains(text, "@") {
		return err
	}
	return fmt.Errorf("%q: %w", text, err)
}

// Address judges host:port, which is to be dialled. A port that is a service's
// name is left to the dialler.
func Address(text string) error {
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" || port == "" {
		return fmt.Errorf("%q is not host:port, such as 127.0.0.1:9000", text)
	}
	if addr, zone, _ := strings.Cut(host, "%"); zone == "" {
		if _, err := checkHost(addr); err != nil {
			return fmt.Errorf("%q: %w", text, err)
		}
	}
	if strings.Trim(port, "+-0123456789") != "" {
		return nil
	}
	if _, err := checkPort(port); err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	return nil
}

// Listener judges [host]:port, on which a server is to listen. Port 0 is any
// that is free; a port may be a service's name.
func Listener(text string) error {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return fmt.Errorf("%q is not host:port, such as :9000 or 127.0.0.1:9000", text)
	}
	if addr, err := netip.ParseAddr(host); host != "" && err != nil {
		if _, err := checkHost(host); err != nil {
			return fmt.Errorf("%q: %w; leave it out to listen on all addresses", text, err)
		}
	} else if addr.Zone() != "" && !addr.IsLinkLocalUnicast() {
		return fmt.Errorf("%q: a zone is for link-local addresses", text)
	}
	if _, err := net.DefaultResolver.LookupPort(context.Background(), "tcp", port); err != nil {
		return fmt.Errorf("%q: there is no port %q; want a number from 0 to 65535", text, port)
	}
	return nil
}

// checkPort returns a port that can be dialled as plain digits.
func checkPort(text string) (string, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return "", fmt.Errorf("port %q, want 1 to 65535", text)
	}
	return strconv.FormatUint(n, 10), nil
}

// checkHost returns an IP address or a DNS name in one form.
func checkHost(host string) (string, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return "", fmt.Errorf("host %q: an IPv6 zone differs from machine to machine", host)
		}
		return addr.String(), nil
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || len(name) > 253 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return "", fmt.Errorf("host %q is neither an IP address nor a DNS name", host)
		}
	}
	// Some resolvers take 10.1 and 0x7f000001 for addresses, others do not.
	last := labels[len(labels)-1]
	if _, err := strconv.ParseUint(last, 0, 64); err == nil || strings.Trim(last, "0123456789") == "" {
		return "", fmt.Errorf("host %q is not an IP address: want four numbers from 0 to 255, or an IPv6 address in brackets", host)
	}
	return name, nil
}
