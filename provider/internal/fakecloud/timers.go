package fakecloud

import (
	"sync"
	"time"
)

// Delays are how long things take at scale 1. A zero field stands for the
// recorded median.
type Delays struct {
	PowerOn     time.Duration // poweron accepted → running: 5 s (max seen 35 s)
	PowerOff    time.Duration // → stopped: 41 s (max seen 188 s)
	Terminate   time.Duration // → 404: 5 s (max seen 118 s)
	Reboot      time.Duration // → running again: 41 s
	StopInPlace time.Duration // → stopped in place: 44 s
	Detach      time.Duration // a volume detached by DELETE of its server → available: 1.3 s (6 s)
	DetachLive  time.Duration // a volume detached from a running server → available: 5 s (63 s)
	// DetachTerminated is for the network volumes of a terminated server, which
	// lets go of them at two fifths of Terminate. With more than the other three
	// they are still in use when the server is a 404 already. None was seen so.
	DetachTerminated time.Duration // 0
	// DetachStart is how long a reference still says "attached" before it says
	// "detaching" (seen 4 times of 105 after a DELETE).
	DetachStart    time.Duration // 0
	NetworkRelease time.Duration // a private NIC gone → its network may be deleted: 0, reported longer
	Counters       time.Duration // IAM: an object made → counted: 2 s, inferred

	// Of Elastic Metal.
	MetalDeliver time.Duration // ordered → ready: 10 s (5 to 15, some offers 290)
	MetalInstall time.Duration // ready → install completed: 340 s (two at 680)
	MetalStart   time.Duration // 15 s
	MetalStop    time.Duration // 15 s
	MetalReboot  time.Duration // stopping → ready: 15 s
	MetalDelete  time.Duration // → 404: 5 s

	VolumeMake time.Duration // a Block volume creating → available: 2 s
	AddressUp  time.Duration // an address attached to a running server pending → attached: 3 s
}

// delayField is one delay under the name that scripts use.
type delayField struct {
	name     string
	value    *time.Duration
	recorded time.Duration
}

func (d *Delays) fields() []delayField {
	return []delayField{
		{"power_on", &d.PowerOn, 5 * time.Second},
		{"power_off", &d.PowerOff, 41 * time.Second},
		{"terminate", &d.Terminate, 5 * time.Second},
		{"reboot", &d.Reboot, 41 * time.Second},
		{"stop_in_place", &d.StopInPlace, 44 * time.Second},
		{"detach", &d.Detach, 1300 * time.Millisecond},
		{"detach_live", &d.DetachLive, 5 * time.Second},
		{"detach_terminated", &d.DetachTerminated, 0},
		{"detach_start", &d.DetachStart, 0},
		{"network_release", &d.NetworkRelease, 0},
		{"volume_make", &d.VolumeMake, 2 * time.Second},
		{"address_up", &d.AddressUp, 3 * time.Second},
		{"metal_deliver", &d.MetalDeliver, 10 * time.Second},
		{"metal_install", &d.MetalInstall, 340 * time.Second},
		{"metal_start", &d.MetalStart, 15 * time.Second},
		{"metal_stop", &d.MetalStop, 15 * time.Second},
		{"metal_reboot", &d.MetalReboot, 15 * time.Second},
		{"metal_delete", &d.MetalDelete, 5 * time.Second},
		{"counters", &d.Counters, 2 * time.Second},
	}
}

func (d Delays) orRecorded() Delays {
	for _, f := range d.fields() {
		if *f.value == 0 {
			*f.value = f.recorded
		}
	}
	return d
}

// timers owns every transition that waits for its time, so that Close leaves
// none behind. Cloud.mu guards the set.
type timers struct {
	pending map[*pending]struct{}
	running sync.WaitGroup // timers not yet cancelled or finished
}

type pending struct{ timer *time.Timer }

// after runs f, with the lock held, once d times the scale has passed. The
// caller holds the lock; a delay of zero runs f at once.
func (c *Cloud) after(d time.Duration, f func()) *pending {
	d = time.Duration(float64(d) * c.scale)
	if d <= 0 {
		f()
		return nil
	}
	if c.closed {
		return nil
	}
	p := &pending{}
	c.pending[p] = struct{}{}
	c.running.Add(1)
	p.timer = time.AfterFunc(d, func() {
		defer c.running.Done()
		c.mu.Lock()
		defer c.mu.Unlock()
		if _, live := c.pending[p]; !live {
			return // cancelled between firing and locking
		}
		delete(c.pending, p)
		f()
	})
	return p
}

// cancel makes sure that p never runs; nil and finished ones are fine. The
// caller holds the lock.
func (c *Cloud) cancel(p *pending) {
	if _, live := c.pending[p]; !live {
		return
	}
	delete(c.pending, p)
	if p.timer.Stop() {
		c.running.Done()
	}
}

func (c *Cloud) cancelAll() {
	for p := range c.pending {
		c.cancel(p)
	}
}
