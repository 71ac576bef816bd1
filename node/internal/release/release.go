// Package release holds the version of the pods' network.
package release

// Version is the version of railwrightd and of the plugins, which are released together. CHANGELOG.md lists the changes
// of each, and deploy/ names the image after it.
const Version = "0.1.0"
