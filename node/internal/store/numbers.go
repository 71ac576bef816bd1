package store

// numbers allocates 1 to 65535. A released number is reused last, so that a stale flow of a deleted attachment is not
// mistaken for a flow of the next.
type numbers struct {
	taken [1 << 16]bool
	// last is the last number allocated. It starts at 0 again after a restart, which is harmless: the daemon then
	// checks all flows.
	last  uint16
	count int
}

func (n *numbers) next() (uint16, bool) {
	if n.count == len(n.taken)-1 {
		return 0, false
	}
	number := n.last + 1
	for number == 0 || n.taken[number] {
		number++
	}
	n.take(number)
	n.last = number
	return number, true
}

func (n *numbers) take(number uint16) bool {
	if number == 0 || n.taken[number] {
		return false
	}
	n.taken[number] = true
	n.count++
	return true
}

func (n *numbers) release(number uint16) {
	if n.taken[number] {
		n.taken[number] = false
		n.count--
	}
}
