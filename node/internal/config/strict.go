package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// unmarshalStrict parses YAML into a struct. It refuses duplicate and unknown fields and wrong types.
func unmarshalStrict(content []byte, into any) error {
	asJSON, err := yaml.YAMLToJSONStrict(content)
	if err != nil {
		return fmt.Errorf("parse YAML: %w", err)
	}
	var loose any
	if err := json.Unmarshal(asJSON, &loose); err != nil {
		return fmt.Errorf("parse YAML: %w", err)
	}
	if _, isMap := loose.(map[string]any); !isMap {
		return errors.New("configuration must have fields, at least `rails` and `tenants`")
	}
	if err := errors.Join(unknownFields(loose, reflect.TypeOf(into).Elem(), "")...); err != nil {
		return err
	}
	err = json.Unmarshal(asJSON, into)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Errorf("%s: must be %s, got a %s", wrong.Field, typeWord(wrong.Type), wrong.Value)
	}
	return err
}

func unknownFields(value any, want reflect.Type, path string) []error {
	switch value := value.(type) {
	case map[string]any:
		if want.Kind() == reflect.Pointer {
			want = want.Elem()
		}
		if want.Kind() != reflect.Struct {
			return nil
		}
		return unknownIn(value, want, path)
	case []any:
		if want.Kind() != reflect.Slice {
			return nil
		}
		var found []error
		for i, element := range value {
			found = append(found, unknownFields(element, want.Elem(), fmt.Sprintf("%s[%d]", path, i))...)
		}
		return found
	}
	return nil
}

func unknownIn(value map[string]any, want reflect.Type, path string) []error {
	known := map[string]reflect.Type{}
	for field := range want.NumField() {
		name, _, _ := strings.Cut(want.Field(field).Tag.Get("json"), ",")
		known[name] = want.Field(field).Type
	}
	var found []error
	for _, name := range sortedKeys(value) {
		where := strings.TrimPrefix(path+"."+name, ".")
		if field, isKnown := known[name]; isKnown {
			found = append(found, unknownFields(value[name], field, where)...)
		} else {
			found = append(found, fmt.Errorf("unknown field %.80q; did you mean %q? (known fields: %s)", where,
				nearestName(name, sortedKeys(known)), strings.Join(sortedKeys(known), ", ")))
		}
	}
	return found
}

func sortedKeys[Value any](values map[string]Value) []string {
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func nearestName(name string, known []string) string {
	return slices.MinFunc(known, func(a, b string) int { return distance(name, a) - distance(name, b) })
}

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for i := range row {
		row[i] = i
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func typeWord(want reflect.Type) string {
	switch want.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Struct:
		return "a group of fields"
	case reflect.String:
		return "text"
	default:
		return "a whole number"
	}
}
