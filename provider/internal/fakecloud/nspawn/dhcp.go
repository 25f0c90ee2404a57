package nspawn

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// A guest's hardware address holds its IPv4 address, so that the server needs
// no table of leases: 02:bf and the four bytes.
func hardwareAddr(a netip.Addr) net.HardwareAddr {
	b := a.As4()
	return append(net.HardwareAddr{0x02, 0xbf}, b[:]...)
}

// dhcpServer gives each guest the one address that it may have.
type dhcpServer struct {
	conn    net.PacketConn
	network *Network
	done    chan struct{}
}

func serveDHCP(n *Network) (*dhcpServer, error) {
	config := net.ListenConfig{Control: func(network, address string, conn syscall.RawConn) error {
		var set error
		err := conn.Control(func(fd uintptr) {
			set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1)
		})
		return errors.Join(err, set, n.bindToBridge(network, address, conn))
	}}
	conn, err := config.ListenPacket(context.Background(), "udp4", ":67")
	if err != nil {
		return nil, err
	}
	s := &dhcpServer{conn: conn, network: n, done: make(chan struct{})}
	go s.serve()
	return s, nil
}

func (s *dhcpServer) close() error {
	err := s.conn.Close()
	<-s.done
	return err
}

func (s *dhcpServer) serve() {
	defer close(s.done)
	buf := make([]byte, 2048)
	for {
		n, _, err := s.conn.ReadFrom(buf)
		if err != nil {
			return // closed
		}
		answer := s.answer(buf[:n])
		if answer == nil {
			continue
		}
		if _, err := s.conn.WriteTo(answer, &net.UDPAddr{IP: net.IPv4bcast, Port: 68}); err != nil {
			s.network.log.Warn("a guest gets no lease", "error", err)
		}
	}
}

// Of RFC 2131 and RFC 2132.
const (
	dhcpHeader   = 236 // the fixed fields, before the magic cookie
	dhcpCookie   = 0x63825363
	leaseSeconds = 86400

	optionMask     = 1
	optionRouter   = 3
	optionLease    = 51
	optionType     = 53
	optionServerID = 54
	optionPad      = 0
	optionEnd      = 255

	typeDiscover = 1
	typeOffer    = 2
	typeRequest  = 3
	typeAck      = 5
)

// answer returns the answer to a request, nil for what needs none.
func (s *dhcpServer) answer(request []byte) []byte {
	if len(request) < dhcpHeader+4 || request[0] != 1 || binary.BigEndian.Uint32(request[dhcpHeader:]) != dhcpCookie {
		return nil
	}
	client := request[28:34]
	if client[0] != 0x02 || client[1] != 0xbf {
		return nil
	}
	var kind byte
	switch messageType(request[dhcpHeader+4:]) {
	case typeDiscover:
		kind = typeOffer
	case typeRequest:
		kind = typeAck
	default:
		return nil
	}
	addr := netip.AddrFrom4([4]byte(client[2:6]))
	out := make([]byte, dhcpHeader+4, dhcpHeader+64)
	out[0], out[1], out[2] = 2, 1, 6
	copy(out[4:8], request[4:8])     // transaction
	out[10] = 0x80                   // the answer is a broadcast
	copy(out[16:20], addr.AsSlice()) // your address
	server := s.network.Gateway().AsSlice()
	copy(out[20:24], server)
	copy(out[28:44], request[28:44])
	binary.BigEndian.PutUint32(out[dhcpHeader:], dhcpCookie)
	option := func(code byte, value ...byte) { out = append(append(out, code, byte(len(value))), value...) }
	option(optionType, kind)
	option(optionServerID, server...)
	option(optionLease, binary.BigEndian.AppendUint32(nil, leaseSeconds)...)
	if addr.IsLinkLocalUnicast() {
		option(optionMask, 255, 255, 0, 0) // the metadata service and nothing else
	} else {
		option(optionMask, 255, 255, 255, 0)
		option(optionRouter, server...)
	}
	return append(out, optionEnd)
}

func messageType(options []byte) byte {
	for len(options) > 2 && options[0] != optionEnd {
		if options[0] == optionPad {
			options = options[1:]
			continue
		}
		end := 2 + int(options[1])
		if end > len(options) {
			return 0
		}
		if options[0] == optionType && end > 2 {
			return options[2]
		}
		options = options[end:]
	}
	return 0
}
