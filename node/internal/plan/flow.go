package plan

// Flow is one OpenFlow 1.4 rule. Match and Actions are in ovs-ofctl's words and made from typed values alone, so that
// no name from outside ever gets into them.
type Flow struct {
	Table    uint8
	Priority uint16
	Match    string
	Actions  string
	// Cookie says whose it is: see Cookie.
	Cookie uint64
	// Meter that Actions name, with Rate in bit/s; 0: none.
	Meter uint32
	Rate  uint64
}

// Key is what makes a flow the same flow: another with the same Key replaces it.
type Key struct {
	Table    uint8
	Priority uint16
	Match    string
}

// Key of the flow.
func (f Flow) Key() Key { return Key{f.Table, f.Priority, f.Match} }

// Magic starts every cookie of ours: "rw" in ASCII.
const Magic uint64 = 0x7277

// Cookie of an attachment's flows (its number), or of what the rail has for all (0). The lower 32 bits name what a
// counter of this flow counts: see Reason.
func Cookie(number uint16, reason Reason) uint64 {
	return Magic<<48 | uint64(number)<<32 | uint64(reason)
}

// ParseCookie is Cookie's reverse; ours is false for a stranger's.
func ParseCookie(cookie uint64) (number uint16, reason Reason, ours bool) {
	return uint16(cookie >> 32), Reason(cookie), cookie>>48 == Magic
}

// Reason is what a flow counts.
type Reason uint32

// Flows that drop say why, so that a counter can be read; at most one of them counts a packet. Sent, Received and
// Answered count one once, Pass at every table that it went through.
const (
	Pass Reason = iota
	Canary
	// DropSpoofed: not the attachment's MAC or address, or a VLAN tag.
	DropSpoofed
	DropUnknownSource
	DropUnknownDestination
	DropOtherTenant
	// DropNotForUs: honest, but not for the gateway, as multicast and what a kernel says to find its neighbours.
	DropNotForUs
	DropDefault
	// DropNoLeaf: it should leave the node, and the leaf's MAC is not known.
	DropNoLeaf
	// DropMarking: a DSCP that pods may not use on the rail.
	DropMarking
	// Answered ARP and ND requests of an attachment.
	Answered
	// Sent by an attachment, as itself; its tenant may still forbid it.
	Sent
	// Received by an attachment.
	Received
)

var reasons = [...]string{
	"pass", "canary", "spoofed", "unknown_source", "unknown_destination", "other_tenant", "not_for_us", "default",
	"no_leaf", "refused_dscp", "answered", "sent", "received",
}

// String is the label of a metric.
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r]
	}
	return "unknown"
}

// Drops says whether flows of this reason drop what they count.
func (r Reason) Drops() bool {
	return r >= DropSpoofed && r <= DropMarking
}
