package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"railwright/node/internal/durable"
)

// remembered is the file of the rails that may have flows and routes of ours on this node.
type remembered struct {
	Rails []Rail `json:"rails"`
}

// RecallRails that RememberRails wrote; none where it never did.
func RecallRails(path string) ([]Rail, error) {
	content, err := durable.ReadSummed(path, mostBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var held remembered
	if err == nil {
		err = json.Unmarshal(content, &held)
	}
	if err != nil {
		return nil, fmt.Errorf("which rails this node served before cannot be told: %w; if none was taken out of the "+
			"configuration, delete %s", err, path)
	}
	return held.Rails, nil
}

// RememberRails before anything is programmed for them, so that what is taken out of the configuration can be undone.
func RememberRails(path string, rails []Rail) error {
	content, err := json.Marshal(remembered{rails})
	if err == nil {
		err = durable.WriteSummed(path, content)
	}
	if err != nil {
		return fmt.Errorf("the rails of this node cannot be written down: %w", err)
	}
	return nil
}

// Retired says which of the rails that this node served before the configuration has no more. What is theirs is served
// until its DEL. A rail that holds attachments may not be made another one under them: that is an error.
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
			wrong = append(wrong, fmt.Errorf("rail %s has attachments on bridge %s with table %d, and %s; leave it as it was until "+
				"its pods are gone, or give the new rail a name, a bridge and a table of its own", old.Name, old.Bridge, old.Table,
				clash))
		}
	}
	return retired, errors.Join(wrong...)
}

// successor of a rail: the same in the configuration, or what has taken something from it.
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
