package directory

// rule is a rule that the simulation leaves out to show what it is for.
type rule string

const (
	claims        rule = "an address has one claim"
	claimFirst    rule = "claim, then read"
	readAtAdd     rule = "read at every ADD"
	readPeers     rule = "read the peers too"
	neverBackward rule = "never take an older state"
	syncRead      rule = "sync what was read"
	membersFirst  rule = "rewrite the members, then delete the claim"
	drain         rule = "hold an address until its packets are gone"
	epochGate     rule = "wait until every machine has published in the epoch"
	epochMembers  rule = "take only members of this epoch"
	epochNodes    rule = "wait for the machines that joined after the backup"
	seeRestore    rule = "stop when versions go back"
)
