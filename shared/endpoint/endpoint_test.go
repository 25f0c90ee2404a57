package endpoint

import (
	"strings"
	"testing"
)

func TestURL(t *testing.T) {
	long := strings.Repeat("a", 64)
	tests := []struct{ text, want string }{ // "" is refused
		{"https://provider.example:9443", "https://provider.example:9443"},
		{"https://Provider.Example.:9443", "https://provider.example:9443"},
		{"https://provider.example.", "https://provider.example"},
		{"https://provider.example:", "https://provider.example"},
		{"https://provider.example:0443/", "https://provider.example:443"},
		{"https://provider/a/../b//c/", "https://provider/b/c"},
		{"https://provider/a%2Fb/", "https://provider/a%2Fb"},
		{"https://my_provider-1.example", "https://my_provider-1.example"},
		{"https://10.1.2.3:65535", "https://10.1.2.3:65535"},
		{"https://[FD00::0001]:1", "https://[fd00::1]:1"},
		{"https://[fd00::1]", "https://[fd00::1]"},
		{"HTTPS://provider", "https://provider"},

		{"https://provider:0", ""},
		{"https://provider:99999", ""},
		{"https://provider:65536", ""},
		{"https://provider:-1", ""},
		{"https://provider:https", ""},
		{"https://provider:1:2", ""},
		{"https://fd00::1", ""},
		{"https://[fe80::1%25eth0]:1", ""},
		{"https://provider..:9443", ""},
		{"https://.provider", ""},
		{"https://.", ""},
		{"https://a..b", ""},
		{"https://" + long, ""},
		{"https://10.1.2", ""},
		{"https://10.1.2.3.", ""},
		{"https://10.1.2.256", ""},
		{"https://0x7f000001", ""},
		{"https://provider.1", ""},
		{"https://pro*vider", ""},
		{"https://prövider", ""},
		{"https://pro vider", ""},
		{"https://provider/a b", ""},
		{" https://provider", ""},
		{"https://provider\n", ""},
		{"https://prov%69der", ""},
		{"https://user:secret@provider", ""},
		{"https://provider?", ""},
		{"https://provider?a=b", ""},
		{"https://provider#a", ""},
		{"http://provider", ""},
		{"https:provider", ""},
		{"https://", ""},
		{"https://:9443", ""},
		{"provider:9443", ""},
		{"", ""},
	}
	for _, tt := range tests {
		u, err := URL(tt.text, "https")
		if (err == nil) != (tt.want != "") || err == nil && u.String() != tt.want {
			t.Errorf("%q: %v, %v, want %q", tt.text, u, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: a password is in %v", tt.text, err)
		}
		if err != nil {
			continue
		}
		if again, err := URL(u.String(), "https"); err != nil || again.String() != tt.want {
			t.Errorf("%q is %v, %v when read again", tt.want, again, err)
		}
	}
	if u, err := URL("http://provider", "https", "http"); err != nil || u.Scheme != "http" {
		t.Errorf("a second scheme: %v, %v", u, err)
	}
}

// TestCheckQuotes: a fault shows the text, and no password in it.
func TestCheckQuotes(t *testing.T) {
	if err := Check("https://provider", "https"); err != nil {
		t.Error(err)
	}
	if err := Check("ftp://provider", "https"); err == nil || !strings.Contains(err.Error(), `"ftp://provider"`) {
		t.Errorf("%v does not quote the URL", err)
	}
	for _, text := range []string{"https://user:secret@provider", "https://user:secret@provider:0", "ftp://user:secret@", "secret@provider"} {
		if err := Check(text, "https"); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAddress(t *testing.T) {
	for text, ok := range map[string]bool{
		"127.0.0.1:9000": true, "provider:9000": true, "provider.:1": true, "[::1]:65535": true, "[fe80::1%eth0]:9000": true, "provider:https": true,
		"provider:0": false, "provider:99999": false, "provider:-1": false, "provider:": false, ":9000": false, "provider": false,
		"::1:9000": false, "": false, "a..b:1": false, "10.1.2:9000": false, "https://provider:9000": false,
	} {
		if err := Address(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzURL(f *testing.F) {
	for _, text := range []string{"https://provider.example.:9443/a/", "https://[fd00::1]:1", "https://a:0", "https://u:p@x", "https://a/%2e%2e/b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := URL(text, "https")
		if err != nil {
			return
		}
		again, err := URL(u.String(), "https")
		if err != nil || again.String() != u.String() {
			t.Errorf("%q is %q and then %v, %v", text, u, again, err)
		}
	})
}

func TestListener(t *testing.T) {
	for text, ok := range map[string]bool{
		":9000": true, ":0": true, "127.0.0.1:9000": true, "localhost:9000": true, "[::]:1": true, "[fe80::1%eth0]:9000": true, "0.0.0.0:http": true,
		"": false, "9000": false, ":99999": false, ":-1": false, "*:9000": false, "a b:9000": false, " :9000": false, ":9000 ": false,
		"1.2.3.4.5:9000": false, "10.1:9000": false, "::1:9000": false, "http://a:9000": false, "a/b:9000": false, "[fd00::1%eth0]:9000": false,
	} {
		if err := Listener(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
