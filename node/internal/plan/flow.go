package plan

// Flow is an OpenFlow 1.4 rule. Match and Actions use ovs-ofctl's syntax and are built only from typed values, so that
// no name from outside reaches them.
type Flow struct {
	Table    uint8
	Priority uint16
	Match    string
	Actions  string
	// Cookie names the owner and the reason; see Cookie.
	Cookie uint64
	// Meter is the meter that Actions name, and Rate its rate in bit/s. 0 means no meter.
	Meter uint32
	Rate  uint64
}

// Key identifies a flow: a flow with the same Key replaces it.
type Key struct {
	Table    uint8
	Priority uint16
	Match    string
}

// Key returns the flow's key.
func (f Flow) Key() Key { return Key{f.Table, f.Priority, f.Match} }

// Magic begins every cookie of railwrightd: "rw" in ASCII.
const Magic uint64 = 0x7277

// Cookie returns the cookie of an attachment's flows, by the attachment's number, or of the flows that a rail's
// attachments share, by 0. The lower 32 bits hold the reason that the flow's counter counts.
func Cookie(number uint16, reason Reason) uint64 {
	return Magic<<48 | uint64(number)<<32 | uint64(reason)
}

// ParseCookie is the reverse of Cookie. It returns ours as false for a cookie without Magic.
func ParseCookie(cookie uint64) (number uint16, reason Reason, ours bool) {
	return uint16(cookie >> 32), Reason(cookie), cookie>>48 == Magic
}

// Reason is the reason why a flow counts a packet.
type Reason uint32

// Dropping flows carry a reason so that their counters can be read; at most one of them counts a packet. Sent, Received
// and Answered count a packet once, Pass in every table that it crosses.
const (
	Pass Reason = iota
	Canary
	// DropSpoofed counts packets with a foreign MAC or IP address, or with a VLAN tag.
	DropSpoofed
	DropUnknownSource
	DropUnknownDestination
	DropOtherTenant
	// DropNotForUs counts valid packets that are not for the gateway, such as multicast and neighbour discovery.
	DropNotForUs
	DropDefault
	// DropNoLeaf counts packets for other nodes while the leaf's MAC is unknown.
	DropNoLeaf
	// DropMarking counts packets with a DSCP that pods must not use on the rail.
	DropMarking
	// Answered counts ARP and ND requests of an attachment.
	Answered
	// Sent counts packets that an attachment sent under its own addresses. Its tenant may still forbid them.
	Sent
	// Received counts packets delivered to an attachment.
	Received
	// Admit is the reason of the flows of members. It has a bit of its own: there are thousands of them, and who reads
	// counters leaves them out.
	Admit Reason = 1 << 31
)

var reasons = [...]string{
	"pass", "canary", "spoofed", "unknown_source", "unknown_destination", "other_tenant", "not_for_us", "default",
	"no_leaf", "refused_dscp", "answered", "sent", "received",
}

// String returns the reason as the value of a metric's label.
func (r Reason) String() string {
	switch {
	case int(r) < len(reasons):
		return reasons[r]
	case r == Admit:
		return "admit"
	}
	return "unknown"
}

// Drops reports whether flows with this reason drop their packets.
func (r Reason) Drops() bool {
	return r >= DropSpoofed && r <= DropMarking
}
