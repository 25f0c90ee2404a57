package nspawn

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// request is a DHCP request as dhclient sends it.
func request(kind byte, client []byte) []byte {
	out := make([]byte, dhcpHeader+4)
	out[0], out[1], out[2] = 1, 1, 6
	binary.BigEndian.PutUint32(out[4:], 0x01020304)
	copy(out[28:], client)
	binary.BigEndian.PutUint32(out[dhcpHeader:], dhcpCookie)
	return slices.Concat(out, []byte{optionPad, 12, 1, 'h', optionType, 1, kind, optionEnd})
}

func options(t *testing.T, answer []byte) map[byte][]byte {
	t.Helper()
	found := map[byte][]byte{}
	for rest := answer[dhcpHeader+4:]; rest[0] != optionEnd; rest = rest[2+rest[1]:] {
		found[rest[0]] = rest[2 : 2+rest[1]]
	}
	return found
}

func TestLease(t *testing.T) {
	s := &dhcpServer{network: &Network{claim: &claim{n: 7}}}
	for _, tt := range []struct {
		name    string
		request []byte
		want    map[byte][]byte // nil for no answer
	}{
		{"discover", request(typeDiscover, hardwareAddr(netip.MustParseAddr("10.213.7.2"))), map[byte][]byte{
			optionType: {typeOffer}, optionServerID: {10, 213, 7, 1}, optionLease: {0, 1, 0x51, 0x80},
			optionMask: {255, 255, 255, 0}, optionRouter: {10, 213, 7, 1},
		}},
		{"request, metadata only", request(typeRequest, hardwareAddr(netip.MustParseAddr("169.254.135.2"))), map[byte][]byte{
			optionType: {typeAck}, optionServerID: {10, 213, 7, 1}, optionLease: {0, 1, 0x51, 0x80}, optionMask: {255, 255, 0, 0},
		}},
		{"release", request(7, hardwareAddr(netip.MustParseAddr("10.213.7.2"))), nil},
		{"a stranger", request(typeDiscover, []byte{0x52, 0x54, 0, 1, 2, 3}), nil},
		{"cut off", request(typeDiscover, hardwareAddr(netip.MustParseAddr("10.213.7.2")))[:dhcpHeader+6], nil},
		{"short", make([]byte, 100), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			answer := s.answer(tt.request)
			if tt.want == nil {
				if answer != nil {
					t.Errorf("answered: %x", answer)
				}
				return
			}
			if answer == nil {
				t.Fatal("no answer")
			}
			if diff := cmp.Diff(tt.want, options(t, answer)); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
			if got := answer[16:20]; !cmp.Equal(got, tt.request[30:34]) {
				t.Errorf("leased %v", got)
			}
			if got := binary.BigEndian.Uint32(answer[4:]); got != 0x01020304 {
				t.Errorf("transaction %#x", got)
			}
		})
	}
}
