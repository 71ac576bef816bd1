package server

import (
	"math/rand/v2"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// mutateField replaces a field of the message, or of a nested one, with a hostile value.
func mutateField(random *rand.Rand, message protoreflect.Message) {
	fields := message.Descriptor().Fields()
	if fields.Len() == 0 {
		return
	}
	field := fields.Get(random.IntN(fields.Len()))
	switch {
	case field.IsList():
		replaceElements(random, message.Mutable(field).List(), field)
	case field.Kind() == protoreflect.MessageKind:
		if random.IntN(10) == 0 {
			message.Clear(field)
		} else {
			mutateField(random, message.Mutable(field).Message())
		}
	default:
		message.Set(field, hostileValue(random, field))
	}
}

func replaceElements(random *rand.Rand, list protoreflect.List, field protoreflect.FieldDescriptor) {
	switch random.IntN(4) {
	case 0:
		list.Truncate(0)
	case 1, 2:
		if field.Kind() == protoreflect.MessageKind {
			mutateField(random, list.AppendMutable().Message())
		} else {
			list.Append(hostileValue(random, field))
		}
	default:
		if list.Len() == 0 {
			return
		}
		if field.Kind() == protoreflect.MessageKind {
			mutateField(random, list.Get(random.IntN(list.Len())).Message())
		} else {
			list.Set(random.IntN(list.Len()), hostileValue(random, field))
		}
	}
}

func hostileValue(random *rand.Rand, field protoreflect.FieldDescriptor) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(random.Int32()))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(random.Uint64())
	default:
		text := hostile[random.IntN(len(hostile))]
		for range random.IntN(3) {
			text += hostile[random.IntN(len(hostile))]
		}
		if random.IntN(50) == 0 {
			for len(text) < 2000 {
				text += "x" + text
			}
		}
		return protoreflect.ValueOfString(text)
	}
}
