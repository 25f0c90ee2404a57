package crash

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/fakecloud"
)

// lose has the cloud stop, remove or lock a server, as somebody else would.
func (f *fleet) lose(how string) {
	f.t.Helper()
	metal := len(f.cloud.Metal()) > 0
	var id string
	if metal {
		id = f.cloud.Metal()[0].ID
	} else {
		id = f.cloud.Servers()[0].ID
	}
	const zone = "/zones/fr-par-1/servers/"
	switch {
	case how == "locked":
		if err := f.cloud.ForceState(id, "locked", ""); err != nil {
			f.t.Fatal(err)
		}
	case metal && how == "gone":
		f.api(http.MethodDelete, "/baremetal/v1"+zone+id, "")
	case metal:
		f.api(http.MethodPost, "/baremetal/v1"+zone+id+"/stop", "{}")
	case how == "gone":
		f.api(http.MethodPost, "/instance/v1"+zone+id+"/action", `{"action":"terminate"}`)
	default:
		f.api(http.MethodPost, "/instance/v1"+zone+id+"/action", `{"action":"poweroff"}`)
	}
}

// api calls the cloud as its console would.
func (f *fleet) api(method, path, body string) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, strings.TrimPrefix(f.env[apiURL(f.env)], "SCW_API_URL=")+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("X-Auth-Token", fakecloud.DefaultSecretKey)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		f.t.Fatalf("%s %s: %s", method, path, resp.Status)
	}
}

func apiURL(env []string) int {
	for i, e := range env {
		if strings.HasPrefix(e, "SCW_API_URL=") {
			return i
		}
	}
	return -1
}

// TestHostIsLostWhileItIsAwaited: a server that is stopped, removed or locked by
// somebody else while an operation waits for its host fails the operation by the
// cloud's word, long before its deadline; also over a kill.
func TestHostIsLostWhileItIsAwaited(t *testing.T) {
	t.Parallel()
	for _, substrate := range []string{"instances", "elastic-metal"} {
		for _, k := range []kind{create, configure, drain} {
			for how, word := range map[string]string{"stopped": "stopped", "gone": "no longer knows", "locked": "locked"} {
				if how == "locked" && k != create {
					continue // its agent lives on, which outweighs the cloud's word
				}
				t.Run(fmt.Sprintf("%s/%s/%s", substrate, k, how), func(t *testing.T) {
					t.Parallel()
					var f *fleet
					if substrate == "instances" {
						f = &fleet{world: newWorld(t, 2)}
					} else {
						f = newMetalWorld(t, 1)
					}
					p := f.run()
					id := f.ids()[0]
					switch k {
					case create:
						f.cut.Store(true)
					case configure:
						f.to(id, create)
						f.hosts.hold.Store(true)
					default:
						f.to(id, create, configure)
						f.hosts.hold.Store(true)
					}
					waits := "gave a host its command"
					if k == create {
						waits = "step=first-contact"
					}
					before := strings.Count(p.log(), waits)
					if _, err := f.call(k, id); err != nil {
						t.Fatal(err)
					}
					eventually(t, 20*time.Second, func() error {
						if strings.Count(p.log(), waits) == before {
							return errors.New("the host is not waited for yet")
						}
						return nil
					})
					p.kill()
					f.run()
					f.lose(how)
					began := time.Now()
					f.await(id, failed)
					if took := time.Since(began); took > 20*time.Second {
						t.Errorf("it was noticed after %s", took)
					}
					m, err := f.get(id)
					if err != nil || !strings.Contains(m.GetLastError(), word) || !strings.Contains(m.GetLastError(), "(missing)") {
						t.Errorf("last_error %q, %v", m.GetLastError(), err)
					}
				})
			}
		}
	}
}

// TestFirstContactIsNotPolledFor: a host's first call ends its Create at once,
// however rarely the cloud is asked; on Instances with six calls in all.
func TestFirstContactIsNotPolledFor(t *testing.T) {
	t.Parallel()
	stamp := regexp.MustCompile(`(?m)^time=(\S+) .*(heard from a host for the first time|transition done)`)
	for _, substrate := range []string{"instances", "elastic-metal"} {
		t.Run(substrate, func(t *testing.T) {
			t.Parallel()
			slow := []string{"--poll-interval=4s", "--reconcile-interval=1h"}
			var f *fleet
			if substrate == "instances" {
				f = &fleet{world: newWorld(t, 2, slow...)}
			} else {
				f = newMetalWorld(t, 1, slow...)
			}
			p := f.run()
			id := f.ids()[0]
			before := len(f.cloud.Calls())
			f.to(id, create)
			calls := f.cloud.Calls()[before:]
			if substrate == "instances" {
				calls = slices.DeleteFunc(calls, func(c fakecloud.Call) bool { return strings.Contains(c.Route, "marketplace") })
				if len(calls) > 6 || len(calls) < 5 {
					t.Errorf("%d calls: %v", len(calls), calls)
				}
			}
			var at []time.Time
			eventually(t, 5*time.Second, func() error {
				at = nil
				for _, m := range stamp.FindAllStringSubmatch(p.log(), -1) {
					when, err := time.Parse(time.RFC3339, m[1])
					if err != nil {
						return err
					}
					at = append(at, when)
				}
				if len(at) != 2 {
					return fmt.Errorf("the log tells of %d moments", len(at))
				}
				return nil
			})
			// A second for the machine that runs the test; a poll takes four.
			if took := at[1].Sub(at[0]); took > time.Second {
				t.Errorf("IDLE %s after first contact", took)
			}
		})
	}
}

// TestLiveHostNeedsNoWordOfTheCloud: a host that polls gets its command, although
// the cloud says for ever that it is on its way up or down.
func TestLiveHostNeedsNoWordOfTheCloud(t *testing.T) {
	t.Parallel()
	for _, substrate := range []string{"instances", "elastic-metal"} {
		for _, word := range []string{"starting", "stopping"} {
			t.Run(substrate+"/"+word, func(t *testing.T) {
				t.Parallel()
				var f *fleet
				if substrate == "instances" {
					f = &fleet{world: newWorld(t, 2)}
				} else {
					f = newMetalWorld(t, 1)
				}
				f.run()
				id := f.ids()[0]
				f.to(id, create)
				m, err := f.get(id)
				if err != nil {
					t.Fatal(err)
				}
				if err := f.cloud.ForceState(strings.TrimPrefix(m.GetHost().GetRef(), "fr-par-1/"), word, ""); err != nil {
					t.Fatal(err)
				}
				f.to(id, configure, drain)
			})
		}
	}
}
