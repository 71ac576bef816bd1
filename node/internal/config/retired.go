package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"railwright/node/internal/durable"
)

// railsFile is the content of the file with the rails that may have flows and routes on this node.
type railsFile struct {
	Rails []Rail `json:"rails"`
}

// RecallRails returns the rails that RememberRails wrote, or none if there is no file.
func RecallRails(path string) ([]Rail, error) {
	content, err := durable.ReadSummed(path, maxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var held railsFile
	if err == nil {
		err = json.Unmarshal(content, &held)
	}
	if err != nil {
		return nil, fmt.Errorf("read the rails of this node: %w; if no rail was removed from the "+
			"configuration, delete %s", err, path)
	}
	return held.Rails, nil
}

// RememberRails must be called before anything is programmed for the rails, so that rails that leave the configuration
// can be undone.
func RememberRails(path string, rails []Rail) error {
	content, err := json.Marshal(railsFile{rails})
	if err == nil {
		err = durable.WriteSummed(path, content)
	}
	if err != nil {
		return fmt.Errorf("save the rails of this node: %w", err)
	}
	return nil
}

// Retired returns the rails that this node served before and that are no longer configured. Their attachments are
// served until their DEL. A rail with attachments must not be reconfigured: that is an error.
func (c Config) Retired(before []Rail, holds func(rail string) bool) ([]Rail, error) {
	var retired []Rail
	var wrong []error
	for _, old := range before {
		clash, same := c.successor(old)
		switch {
		case same:
		case clash == "":
			old.Retired = true
			retired = append(retired, old)
		case holds(old.Name):
			wrong = append(wrong, fmt.Errorf("rail %s has attachments on bridge %s with table %d, but %s; keep it unchanged until "+
				"its pods are gone, or give the new rail its own name, bridge and table", old.Name, old.Bridge, old.Table,
				clash))
		}
	}
	return retired, errors.Join(wrong...)
}

// successor reports whether the rail is configured unchanged, or what the configuration changed about it.
func (c Config) successor(old Rail) (clash string, same bool) {
	for _, rail := range c.Rails {
		if rail.Name == old.Name && rail.Bridge == old.Bridge && rail.Table == old.Table {
			return "", true
		}
	}
	for _, rail := range c.Rails {
		switch {
		case rail.Name == old.Name:
			return fmt.Sprintf("the configuration gives it bridge %s and table %d", rail.Bridge, rail.Table), false
		case rail.Bridge == old.Bridge:
			return fmt.Sprintf("the configuration gives its bridge to rail %s", rail.Name), false
		case rail.Table == old.Table:
			return fmt.Sprintf("the configuration gives its table to rail %s", rail.Name), false
		}
	}
	return "", false
}
