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
	VolumeMake  time.Duration // a Block volume creating → available: 2 s
	AddressUp   time.Duration // an address attached to a running server pending → attached: 3 s
}

func (d Delays) orRecorded() Delays {
	for _, f := range []struct {
		field    *time.Duration
		recorded time.Duration
	}{
		{&d.PowerOn, 5 * time.Second},
		{&d.PowerOff, 41 * time.Second},
		{&d.Terminate, 5 * time.Second},
		{&d.Reboot, 41 * time.Second},
		{&d.StopInPlace, 44 * time.Second},
		{&d.Detach, 1300 * time.Millisecond},
		{&d.DetachLive, 5 * time.Second},
		{&d.VolumeMake, 2 * time.Second},
		{&d.AddressUp, 3 * time.Second},
	} {
		if *f.field == 0 {
			*f.field = f.recorded
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
