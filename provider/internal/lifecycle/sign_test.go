package lifecycle_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
)

// signedCloud's boot is waited for under a sign.
type signedCloud struct {
	*scriptedCloud
	sign cloud.Sign
}

func (c signedCloud) Create() []cloud.Step {
	steps := c.scriptedCloud.Create()
	steps[len(steps)-1].Sign = c.sign
	return steps
}

// First contact ends the wait for the cloud's word at once, also in the pause
// after a failed read; where the word still counts, it is asked for at once.
func TestFirstContactWakes(t *testing.T) {
	for name, tt := range map[string]struct {
		sign cloud.Sign
		word []error
		runs int // of the step, after the contact
	}{
		"done":              {cloud.SignDone, slicesOf(cloud.Again(5*time.Minute, "the server is starting"), 9), 0},
		"done after errors": {cloud.SignDone, slicesOf(errors.New("503"), 20), 0},
		"a look":            {cloud.SignLook, []error{cloud.Again(5*time.Minute, "it is being installed")}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newLivingHosts()
				r := newRig(t, func(o *lifecycle.Options) {
					living(h, 5*time.Second)(o)
					o.Cloud = signedCloud{o.Cloud.(*scriptedCloud), tt.sign}
				})
				synctest.Wait()
				r.cloud.script("boot", tt.word...)
				r.must(machine.Create)
				time.Sleep(41 * time.Second)
				before := r.cloud.count("boot")
				h.call()
				time.Sleep(300 * time.Millisecond)
				if rec := r.record("m1"); rec.State != machine.Idle {
					t.Errorf("0.3 s after first contact the machine is %s", rec.State)
				}
				if n := r.cloud.count("boot") - before; n != tt.runs {
					t.Errorf("the cloud was asked %d times after first contact, want %d", n, tt.runs)
				}
			})
		})
	}
}

// The word of the cloud does not keep a command from a host that is there.
func TestLiveHostIsPower(t *testing.T) {
	for _, k := range []machine.Kind{machine.Configure, machine.Drain} {
		for name, word := range map[string]error{
			"starting for ever": cloud.Again(5*time.Second, "the server is starting"),
			"stopping for ever": cloud.Again(5*time.Second, "the server is stopping"),
			"no answer":         errors.New("503"),
		} {
			t.Run(k.String()+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newLivingHosts()
					r := newRig(t, living(h, 5*time.Second))
					synctest.Wait()
					if k == machine.Configure {
						r.must(machine.Create)
						time.Sleep(time.Second)
						h.call()
						r.settle(machine.Idle)
					} else {
						waitsFor(t, r, h, machine.Configure)
						h.reports(true, "")
						r.settle(machine.Configured)
					}
					h.lives(true)
					r.cloud.script("start", slicesOf(word, 1000)...)
					sent := h.commands()
					r.must(k)
					time.Sleep(5 * time.Second)
					if h.commands() == sent {
						t.Fatal("5 s later the host has no command")
					}
					h.reports(true, "")
					r.settle(map[machine.Kind]machine.State{machine.Configure: machine.Configured, machine.Drain: machine.Idle}[k])
				})
			})
		}
	}
}

// A host that was heard from a while ago, and is not there, is no proof.
func TestSilentHostIsNoPower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newLivingHosts()
		r := newRig(t, living(h, 5*time.Second))
		synctest.Wait()
		r.must(machine.Create)
		time.Sleep(time.Second)
		h.call()
		r.settle(machine.Idle)
		r.cloud.script("start", slicesOf(cloud.Again(5*time.Second, "the server is stopping"), 10)...)
		r.must(machine.Configure)
		time.Sleep(45 * time.Second)
		if h.commands() != 0 {
			t.Error("a host that is stopping was given a command")
		}
		time.Sleep(10 * time.Second)
		if h.commands() != 1 {
			t.Error("the host runs and has no command")
		}
	})
}
