// railwright-cni is the CNI plugins of Railwright. The program's name selects the plugin; see internal/cni.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"railwright/node/internal/cni"
	"railwright/node/internal/release"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println("railwright-cni " + release.Version)
		return
	}
	failed := cni.Run(filepath.Base(os.Args[0]))
	if failed == nil {
		return
	}
	if err := failed.Print(); err != nil {
		fmt.Fprintln(os.Stderr, failed)
	}
	os.Exit(1)
}
