//go:build !failpoints

package failpoint

// Armed reports whether this build has failpoints.
const Armed = false

// Reach does nothing in this build.
func Reach(Name) {}
