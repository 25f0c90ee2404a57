package elasticmetal_test

import (
	"net/http"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/cloud/cloudtest"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/cloud/scaleway/elasticmetal"
	"bigfleet-providers/provider/internal/fakecloud"
)

// FuzzAnswers has the API answer everything with the same arbitrary words, by
// way of the vendor's client.
func FuzzAnswers(f *testing.F) {
	const secret = "5ec2e7aa-cafe-4bad-8bad-5ec2e75ec2e7"
	const server = `"id":"11111111-1111-4111-8111-111111111111","name":"n","zone":"fr-par-2","project_id":"` + fakecloud.DefaultProjectID + `","offer_id":"o","offer_name":"EM-B112X-SSD","status":"ready","tags":["bigfleet=scaleway-fr-par-2","bigfleet-machine=m","bigfleet-operation=op"]`
	for _, body := range []string{
		``, `{}`, `null`, `[]`, `{"servers":null}`, `{"servers":[null],"total_count":1}`, `{` + server + `}`, `{` + server + `,"install":null,"ips":[null],"options":[null]}`, `{` + server + `,"install":{"status":"error","os_id":""},"ips":null,"ping_status":7}`,
		`{"servers":[{` + server + `}],"total_count":1}`, `{"servers":[{` + server + `}],"total_count":4294967295}`, `{"servers":[],"total_count":4294967295}`,
		`{"offers":[null],"total_count":1}`, `{"offers":[{"id":"o","name":"EM-B112X-SSD","stock":"empty","price_per_hour":null,"cpus":null,"disks":[{}],"memories":null}],"total_count":1}`,
		`{"offers":[{"id":"o","name":"EM-B112X-SSD","price_per_hour":{"currency_code":"EUR","units":-1,"nanos":9999999999},"cpus":[{"core_count":4294967295}],"memories":[{"capacity":18446744073709551615}],"subscription_period":"hourly","stock":"available","enable":true}],"total_count":1}`,
		`{"os":[null],"total_count":1}`, `{"os":[{"id":"x","name":"Ubuntu","version":"24.04","allowed":true,"ssh":null,"user":null}],"total_count":1}`, `{"ssh_keys":[null],"total_count":1}`, `{"ssh_keys":[{"id":"k","disabled":false}],"total_count":1}`,
		`{"type":"out_of_stock"}`, `{"type":"quotas_exceeded","details":[null]}`, `{"type":"not_found"}`, `{"type":"transient_state"}`, `{"message":7,"type":["x"]}`, "<html>", "\xff\xfe",
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
		c, err := elasticmetal.New(elasticmetal.Config{
			Client: client, Zone: zone, ProjectID: fakecloud.DefaultProjectID, Provider: provider, System: "Ubuntu 24.04",
			Timing: elasticmetal.Timing{Poll: time.Millisecond, Settle: time.Millisecond, Hold: time.Millisecond, Catalog: time.Millisecond},
		})
		if err != nil {
			t.Fatal(err)
		}
		cloudtest.Answers(t, p, c, zone, offer, secret)
	})
}
