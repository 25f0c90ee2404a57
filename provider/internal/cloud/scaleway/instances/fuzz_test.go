package instances_test

import (
	"net/http"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/cloud/cloudtest"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/cloud/scaleway/instances"
	"bigfleet-providers/provider/internal/fakecloud"
)

// FuzzAnswers has the API answer everything with the same arbitrary words, by
// way of the vendor's client.
func FuzzAnswers(f *testing.F) {
	const secret = "5ec2e7aa-cafe-4bad-8bad-5ec2e75ec2e7"
	const server = `"id":"11111111-1111-4111-8111-111111111111","name":"n","zone":"fr-par-1","project":"` + fakecloud.DefaultProjectID + `","commercial_type":"DEV1-S","state":"running","tags":["bigfleet=scaleway-fr-par-1","bigfleet-machine=m","bigfleet-operation=op"]`
	for _, body := range []string{
		``, `{}`, `null`, `[]`, `{"servers":null}`, `{"servers":[null],"total_count":1}`, `{"server":null}`, `{"server":{}}`, `{"volumes":[null],"total_count":1}`, `{"ips":[null]}`,
		`{"servers":[{` + server + `}],"total_count":1}`, `{"servers":[{` + server + `}],"total_count":4294967295}`, `{"servers":[],"total_count":4294967295}`,
		`{"server":{` + server + `,"volumes":{"0":null,"x":{"id":"v","volume_type":"l_ssd"}},"public_ips":[null],"private_nics":[null],"allowed_actions":["poweron","terminate"]}}`,
		`{"server":{` + server + `,"volumes":{"0":null,"x":{"id":"v","volume_type":"sbs_volume"}}}}`, `{"servers":[{` + server + `,"volumes":{"0":null},"image":null,"location":null}],"total_count":1}`,
		`{"server":{` + server + `,"volumes":null,"image":null,"creation_date":"yesterday"}}`, `{"servers":{"DEV1-S":null}}`, `{"servers":{"DEV1-S":{"hourly_price":-1,"ram":18446744073709551615,"ncpus":4294967295,"gpu":null}}}`,
		`{"local_images":[null],"total_count":1}`, `{"image":null}`, `{"task":null}`, `{"type":"out_of_stock"}`, `{"type":"quotas_exceeded","details":[null]}`, `{"type":"not_found"}`, `{"message":7,"type":["x"]}`,
		`{"volumes":[{"id":"v","tags":["bigfleet=scaleway-fr-par-1"],"status":"error"}],"ips":[{"id":"i","address":null,"tags":["bigfleet=scaleway-fr-par-1"]}],"total_count":1}`, "<html>", "\xff\xfe",
	} {
		for _, status := range []int{200, 404, 429, 503} {
			f.Add(status, "application/json", []byte(body))
		}
	}
	f.Add(204, "text/plain", []byte{})
	f.Add(301, "", []byte("x"))
	f.Fuzz(func(t *testing.T, status int, kind string, body []byte) {
		p := &cloudtest.Parrot{Status: status, Type: kind, Body: body}
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
		cloudtest.Answers(t, p, c, zone, localType, secret)
	})
}
