package store

// numbers from 1 to 65535. Those given back come round last, so that a flow of an attachment that has just gone is not
// taken for one of the next.
type numbers struct {
	taken [1 << 16]bool
	// last given out; after a start the count begins anew, which is fine: all flows are looked at then.
	last  uint16
	count int
}

func (numbers *numbers) next() (uint16, bool) {
	if numbers.count == len(numbers.taken)-1 {
		return 0, false
	}
	number := numbers.last + 1
	for number == 0 || numbers.taken[number] {
		number++
	}
	numbers.take(number)
	numbers.last = number
	return number, true
}

func (numbers *numbers) take(number uint16) bool {
	if number == 0 || numbers.taken[number] {
		return false
	}
	numbers.taken[number] = true
	numbers.count++
	return true
}

func (numbers *numbers) give(number uint16) {
	if numbers.taken[number] {
		numbers.taken[number] = false
		numbers.count--
	}
}
