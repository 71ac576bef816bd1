package folder

import (
	"io/fs"
	"syscall"
)

func inode(status fs.FileInfo) uint64 {
	if system, known := status.Sys().(*syscall.Stat_t); known {
		return system.Ino
	}
	return 0
}
