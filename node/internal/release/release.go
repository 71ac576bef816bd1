// Package release says which release of the pods' network this is.
package release

// Version of railwrightd and of the plugins, which are released together. CHANGELOG.md says what each brings, and
// deploy/ names the image after it.
const Version = "0.1.0"
