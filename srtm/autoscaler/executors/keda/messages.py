"""KEDA's external scaler interface, as message classes made at run time.

The fields and their numbers are those of `externalscaler.proto` of KEDA 2 (kedacore/keda,
pkg/scalers/externalscaler). Made from descriptors they fit any protobuf that is installed;
generated code would ask for the one that it was generated for.
"""

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE: Final = "externalscaler"
SERVICE: Final = f"{PACKAGE}.ExternalScaler"

_FIELD = descriptor_pb2.FieldDescriptorProto
_STRING, _BOOL, _INT64, _DOUBLE = (
    _FIELD.TYPE_STRING,
    _FIELD.TYPE_BOOL,
    _FIELD.TYPE_INT64,
    _FIELD.TYPE_DOUBLE,
)
_MESSAGES: dict[str, tuple[tuple[str, int, object, bool], ...]] = {
    "ScaledObjectRef": (("name", 1, _STRING, False), ("namespace", 2, _STRING, False)),
    "IsActiveResponse": (("result", 1, _BOOL, False),),
    "MetricSpec": (
        ("metricName", 1, _STRING, False),
        ("targetSize", 2, _INT64, False),
        ("targetSizeFloat", 3, _DOUBLE, False),
    ),
    "GetMetricSpecResponse": (("metricSpecs", 1, "MetricSpec", True),),
    "GetMetricsRequest": (
        ("scaledObjectRef", 1, "ScaledObjectRef", False),
        ("metricName", 2, _STRING, False),
    ),
    "MetricValue": (
        ("metricName", 1, _STRING, False),
        ("metricValue", 2, _INT64, False),
        ("metricValueFloat", 3, _DOUBLE, False),
    ),
    "GetMetricsResponse": (("metricValues", 1, "MetricValue", True),),
}
"""message -> (field, number, type, repeated); the map `scalerMetadata` (3) of ScaledObjectRef is
passed over, as protobuf does with fields that it does not know"""


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="srtm/externalscaler.proto", package=PACKAGE, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeated in fields:
            added = message.field.add(
                name=field,
                number=number,
                label=_FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL,
            )
            if isinstance(kind, str):
                added.type, added.type_name = _FIELD.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
            else:
                added.type = kind
    pool = descriptor_pool.DescriptorPool()  # of our own: another program may have made KEDA's
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in _MESSAGES
    }


CLASSES: Final = _classes()
