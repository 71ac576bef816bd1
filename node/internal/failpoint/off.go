//go:build !failpoints

package failpoint

// Armed says whether this build can be made to die.
const Armed = false

// Reach does nothing in this build.
func Reach(Name) {}
