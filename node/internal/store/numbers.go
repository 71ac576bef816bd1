package store

// numbers from 1 to 65535. Those given back come round last, so that a flow of an attachment that has just gone is not
// taken for one of the next.
type numbers struct {
	taken [1 << 16]bool
	// last given out; after a start the count begins anew, which is fine: all flows are looked at then.
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

func (n *numbers) give(number uint16) {
	if n.taken[number] {
		n.taken[number] = false
		n.count--
	}
}
