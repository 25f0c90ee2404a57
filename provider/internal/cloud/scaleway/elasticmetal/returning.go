package elasticmetal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/scaleway/scaleway-sdk-go/api/baremetal/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

var _ cloud.Returner = (*Cloud)(nil)

// Spares implements cloud.Returner.
func (c *Cloud) Spares(ctx context.Context) ([]cloud.Spare, error) {
	servers, err := c.list(ctx, scaleway.OwnerTag(c.scope.Provider))
	if err != nil {
		return nil, err
	}
	spares := []cloud.Spare{}
	offers := map[string]*baremetal.Offer{} // by id; nil where the API told of none
	for _, s := range servers {
		if !unclaimed(s) {
			continue
		}
		offer, known := offers[s.OfferID]
		if !known {
			if offer, err = c.offerOf(ctx, s); err != nil {
				return nil, err
			}
			offers[s.OfferID] = offer
		}
		spare := cloud.Spare{
			Ref: c.scope.Ref(s.ID), Type: s.OfferName, Status: describe(s), Since: scaleway.ParseTags(s.Tags).Spare,
			Billing: billing(s, offer, time.Now()), Keep: c.mustKeep(s),
		}
		if s.CreatedAt != nil {
			spare.Created = *s.CreatedAt
		}
		spares = append(spares, spare)
	}
	return spares, nil
}

// unclaimed says that the server is no machine's, in whatever status.
func unclaimed(s *baremetal.Server) bool {
	tags := scaleway.ParseTags(s.Tags)
	return tags.Spare != "" && tags.Machine == "" && tags.Cluster == ""
}

// mustKeep says why a spare must not be returned.
func (c *Cloud) mustKeep(s *baremetal.Server) string {
	switch {
	case c.reserved(s.ID):
		return "the offerings file names it under servers; take it out of the file first"
	case s.Protected:
		return "it is protected at Scaleway; remove the protection there first"
	case s.Status == baremetal.ServerStatusDeleting:
		return "it is being deleted already"
	default:
		return ""
	}
}

// Return implements cloud.Returner. It has the turn, so that no Create takes the
// server meanwhile.
func (c *Cloud) Return(ctx context.Context, ref string) error {
	name := "return of " + ref
	if !c.turn.take(name, c.timing.Turn) {
		return fmt.Errorf("%w: an order in this project and zone is under way, which may take the server; try again when it is through", cloud.ErrConflict)
	}
	defer c.turn.leave(name)
	s, err := c.owned(ctx, ref)
	if err != nil {
		return err
	}
	if !unclaimed(s) {
		return fmt.Errorf("%w: server %s is not spare: it is machine %q", cloud.ErrInvalid, s.ID, scaleway.ParseTags(s.Tags).Machine)
	}
	if why := c.mustKeep(s); why != "" {
		return fmt.Errorf("%w: server %s: %s", cloud.ErrConflict, s.ID, why)
	}
	_, err = c.api.DeleteServer(&baremetal.DeleteServerRequest{Zone: c.scope.Zone, ServerID: s.ID}, scw.WithContext(ctx))
	if err = scaleway.Explain(err); err != nil && !errors.Is(err, cloud.ErrNotFound) {
		return fmt.Errorf("delete server %s: %w", s.ID, err)
	}
	c.log.Warn("a spare server is given back", "server", s.ID, "offer", s.OfferName)
	return nil
}

// offerOf reads the offer of a server; nil when it is sold no more.
func (c *Cloud) offerOf(ctx context.Context, s *baremetal.Server) (*baremetal.Offer, error) {
	for _, period := range []baremetal.OfferSubscriptionPeriod{baremetal.OfferSubscriptionPeriodHourly, baremetal.OfferSubscriptionPeriodMonthly} {
		resp, err := scaleway.Read(&c.guard, c.client, func() (*baremetal.ListOffersResponse, error) {
			return c.api.ListOffers(&baremetal.ListOffersRequest{Zone: c.scope.Zone, SubscriptionPeriod: period, Name: &s.OfferName}, scw.WithContext(ctx), scw.WithAllPages())
		})
		if err != nil {
			return nil, fmt.Errorf("list offers: %w", err)
		}
		for _, o := range resp.Offers {
			if o != nil && o.ID == s.OfferID {
				return o, nil
			}
		}
	}
	return nil, nil
}

// billing says what a server costs and until when it bills if it is given back
// now. By the hour each hour that has begun is paid, by the month each month
// (Scaleway's documentation of Elastic Metal's prices).
func billing(s *baremetal.Server, o *baremetal.Offer, now time.Time) string {
	if o == nil {
		return "its offer is sold no more: Scaleway's console says what it costs"
	}
	if s.CreatedAt == nil {
		return "since an unknown time: Scaleway's console says what it costs"
	}
	if hourly(o) {
		until := s.CreatedAt.Add(now.Sub(*s.CreatedAt).Truncate(time.Hour) + time.Hour)
		return fmt.Sprintf("%s an hour without tax; the hour that has begun is paid, until %s", money(o.PricePerHour), until.UTC().Format(time.RFC3339))
	}
	until := *s.CreatedAt
	for months := 1; !until.After(now); months++ {
		until = s.CreatedAt.AddDate(0, months, 0)
	}
	return fmt.Sprintf("%s a month without tax; the month that has begun is paid, until %s", money(o.PricePerMonth), until.UTC().Format(time.RFC3339))
}

func money(m *scw.Money) string {
	if m == nil {
		return "an unknown price"
	}
	return fmt.Sprintf("%.3f %s", m.ToFloat(), m.CurrencyCode)
}
