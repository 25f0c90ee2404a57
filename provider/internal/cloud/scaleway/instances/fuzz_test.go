package instances_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/cloud/scaleway/instances"
	"bigfleet-providers/provider/internal/fakecloud"
)

// maxAnswers is how many questions a method gets answers to. The vendor's client
// asks for as many pages as the API says there are; ours asks for none that
// would bring nothing.
const maxAnswers = 300

// parrot answers every request with the same words.
type parrot struct {
	status int
	kind   string // Content-Type
	body   []byte
	asked  atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (p *parrot) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.asked.Add(1) > maxAnswers {
		return nil, errTooMany
	}
	return &http.Response{
		StatusCode: p.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:  http.Header{"Content-Type": {p.kind}, "X-Total-Count": {"250"}},
		Request: r, Body: io.NopCloser(bytes.NewReader(p.body)), ContentLength: int64(len(p.body)),
	}, nil
}

// statusOf is a status that a server can answer with, the number itself if it is
// one.
func statusOf(n uint16) int {
	if n < 200 || n > 599 {
		return 200 + int(n)%400
	}
	return int(n)
}

var errTooMany = errors.New("asked too often")

// FuzzAnswers has the API answer everything with the same arbitrary words, by
// way of the vendor's client. Whatever they are, the adapter comes to an end
// without a panic, asks no endless number of questions, and lists nothing that
// is not its own.
func FuzzAnswers(f *testing.F) {
	const secret = "5ec2e7aa-cafe-4bad-8bad-5ec2e75ec2e7"
	const server = `"id":"11111111-1111-4111-8111-111111111111","name":"n","zone":"fr-par-1","project":"105bdce1-64c0-48ab-899d-868455867ecf","commercial_type":"DEV1-S","state":"running","tags":["bigfleet=scaleway-fr-par-1","bigfleet-machine=m","bigfleet-operation=op"]`
	for _, body := range []string{
		``, `{}`, `null`, `[]`, `{"servers":null}`, `{"servers":[null],"total_count":1}`, `{"server":null}`, `{"server":{}}`, `{"volumes":[null],"total_count":1}`, `{"ips":[null]}`,
		`{"servers":[{` + server + `}],"total_count":1}`, `{"servers":[{` + server + `}],"total_count":4294967295}`, `{"servers":[],"total_count":4294967295}`,
		`{"server":{` + server + `,"volumes":{"0":null,"x":{"id":"v","volume_type":"l_ssd"}},"public_ips":[null],"private_nics":[null],"allowed_actions":["poweron","terminate"]}}`,
		`{"server":{` + server + `,"volumes":null,"image":null,"creation_date":"yesterday"}}`, `{"servers":{"DEV1-S":null}}`, `{"servers":{"DEV1-S":{"hourly_price":-1,"ram":18446744073709551615,"ncpus":4294967295,"gpu":null}}}`,
		`{"local_images":[null],"total_count":1}`, `{"image":null}`, `{"task":null}`, `{"type":"out_of_stock"}`, `{"type":"quotas_exceeded","details":[null]}`, `{"type":"not_found"}`, `{"message":7,"type":["x"]}`,
		`{"volumes":[{"id":"v","tags":["bigfleet=scaleway-fr-par-1"],"status":"error"}],"ips":[{"id":"i","address":null,"tags":["bigfleet=scaleway-fr-par-1"]}],"total_count":1}`, "<html>", "\xff\xfe",
	} {
		for _, status := range []uint16{200, 404, 429, 503} {
			f.Add(status, "application/json", []byte(body))
		}
	}
	f.Add(uint16(204), "text/plain", []byte{})
	f.Add(uint16(301), "", []byte("x"))
	f.Fuzz(func(t *testing.T, status uint16, kind string, body []byte) {
		p := &parrot{status: statusOf(status), kind: kind, body: body}
		client, err := scaleway.NewClient(scaleway.ClientConfig{
			AccessKey: fakecloud.DefaultAccessKey, SecretKey: secret, ProjectID: fakecloud.DefaultProjectID,
			Zone: zone, APIURL: "http://api.test", HTTP: &http.Client{Transport: p},
		})
		if err != nil {
			t.Fatal(err)
		}
		c, err := instances.New(instances.Config{
			Client: client, Zone: zone, ProjectID: fakecloud.DefaultProjectID, Provider: "scaleway-fr-par-1", Image: "ubuntu_noble",
			Timing: instances.Timing{Poll: time.Millisecond, Settle: time.Millisecond, Stuck: time.Millisecond},
		})
		if err != nil {
			t.Fatal(err)
		}
		const ref = zone + "/11111111-1111-4111-8111-111111111111"
		ask := func(what string, call func(ctx context.Context) error) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			p.asked.Store(0)
			err := call(ctx)
			if ours := what == "List" || what == "Types"; ctx.Err() != nil || ours && p.asked.Load() > maxAnswers {
				t.Errorf("%s does not come to an end", what)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the secret key is quoted", what)
			}
		}
		ask("List", func(ctx context.Context) error {
			list, err := c.List(ctx)
			for _, i := range list {
				if !strings.HasPrefix(i.Ref, zone+"/") {
					t.Errorf("listed: %+v", i)
				}
			}
			return err
		})
		ask("Strays", func(ctx context.Context) error {
			strays, err := c.Strays(ctx)
			for _, s := range strays {
				ask("Remove", func(ctx context.Context) error { return c.Remove(ctx, s) })
			}
			return err
		})
		ask("Get", func(ctx context.Context) error { _, err := c.Get(ctx, ref); return err })
		ask("SetCluster", func(ctx context.Context) error { return c.SetCluster(ctx, ref, "c") })
		ask("Scrub", func(ctx context.Context) error { return c.Scrub(ctx, ref) })
		ask("Types", func(ctx context.Context) error { _, err := c.Types(ctx); return err })
		ask("Access", c.Access)
		ask("Fit", func(ctx context.Context) error {
			return c.Fit(ctx, localType, cloud.Options{RootVolume: &cloud.RootVolume{Type: cloud.VolumeBlock}})
		})
		ask("Probe", func(ctx context.Context) error {
			c.Probe(ctx, []cloud.Wanted{{At: "x", Type: localType, Count: 1}})
			return nil
		})
		for _, ref := range []string{"", ref} {
			for name, steps := range map[string][]cloud.Step{"Create": c.Create(), "Start": c.Start(), "Delete": c.Delete(), "Discard": c.Discard()} {
				task := &cloud.Task{Ref: ref, Spec: cloud.Spec{
					MachineID: "m", OperationID: "op", Type: localType, Zone: zone, UserData: func() ([]byte, error) { return []byte("#cloud-config\n"), nil },
				}}
				for _, s := range steps { // also those after one that failed: a restart may begin at any
					ask(fmt.Sprint(name, ", ", s.Name), func(ctx context.Context) error { return s.Run(ctx, task) })
				}
			}
		}
	})
}
