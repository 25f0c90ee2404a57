package fakecloud

import (
	"cmp"
	"time"
)

// switches are the standing misbehaviours: what faults are for one call, these
// are for a kind of object. Cloud.mu guards them.
type switches struct {
	delays    Delays
	scale     float64
	listLag   time.Duration
	getLag    time.Duration
	pageShift int
	keyFlap   time.Duration
	stock     map[zoneType]Stock
	quotas    map[string]int
	quotaBody QuotaBody
	legacy    bool
	busyMeta  int // calls of the metadata service to answer with 429; negative for all
}

func newSwitches(opts Options) switches {
	return switches{
		delays: opts.Delays.orRecorded(), scale: opts.Scale, legacy: opts.LegacyRefusals,
		stock: map[zoneType]Stock{}, quotas: map[string]int{}, quotaBody: QuotaBodyFlat,
	}
}

// SetDelays replaces the delays for transitions that begin from now on; zero
// fields take the recorded value. The scale still applies.
func (c *Cloud) SetDelays(d Delays) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delays = d.orRecorded()
}

// SetScale replaces the factor on every delay, for transitions that begin from
// now on.
func (c *Cloud) SetScale(scale float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scale = scale
}

// SetLag hides new servers from ListServers for list and from GetServer for
// get after their creation, unscaled. No lag is recorded of the real API;
// other clouds have one.
func (c *Cloud) SetLag(list, get time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listLag, c.getLag = list, get
}

// SetPageShift makes every page of ListServers after the first look as if n
// servers had been made since page one was read, so that the last n of a page
// come again; or, with a negative n, as if that many of page one had been
// deleted, so that as many are skipped.
func (c *Cloud) SetPageShift(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pageShift = n
}

// Stock is what the availability list says of a type in a zone.
type Stock string

// The three words. With Shortage a power-on is refused as out of stock; a
// create is not, since a slot is claimed at power-on only.
const (
	Available Stock = "available"
	Scarce    Stock = "scarce"
	Shortage  Stock = "shortage"
)

type zoneType struct{ zone, name string }

// SetStock changes the stock of a type in a zone.
func (c *Cloud) SetStock(zone, commercialType string, s Stock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stock[zoneType{zone, commercialType}] = s
}

// SetQuota limits how many servers of a type may exist, in all zones and
// states together; a negative n lifts the limit.
func (c *Cloud) SetQuota(commercialType string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setQuota(commercialType, n)
}

func (c *Cloud) setQuota(commercialType string, n int) {
	if n < 0 {
		delete(c.quotas, commercialType)
		return
	}
	c.quotas[commercialType] = n
}

// QuotaBody is one of the three bodies that the API has had for a create
// beyond the quota.
type QuotaBody string

// The bodies, the current one first.
const (
	QuotaBodyFlat     QuotaBody = "flat"
	QuotaBodyStandard QuotaBody = "standard"
	QuotaBodyLegacy   QuotaBody = "legacy"
)

// SetQuotaBody changes the body; "" means the current one.
func (c *Cloud) SetQuotaBody(b QuotaBody) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quotaBody = cmp.Or(b, QuotaBodyFlat)
}

// SetMetadataBusy makes the next n calls of the metadata service fail with 429;
// a negative n all of them until it is set again.
func (c *Cloud) SetMetadataBusy(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busyMeta = n
}

// SetProtected changes the protection of a server. It reports whether there is
// such a server.
func (c *Cloud) SetProtected(serverID string, protected bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.inv.servers[serverID]
	if s != nil {
		s.protected = protected
	}
	return s != nil
}
