"""Client and server side of the gRPC service `Pbt`, made from its descriptor in `proto/pbt.proto`."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from lobench_pbt.proto import pbt_pb2

__all__ = ["PbtStub", "servicer_handler"]

_SERVICE = pbt_pb2.DESCRIPTOR.services_by_name["Pbt"]


class PbtStub:
    """Remote methods of a controller. Each one is an attribute of its name: `stub.Suggest(request)`."""

    def __init__(self, channel: grpc.Channel) -> None:
        for method in _SERVICE.methods:
            remote_method = channel.unary_unary(
                f"/{_SERVICE.full_name}/{method.name}",
                request_serializer=GetMessageClass(method.input_type).SerializeToString,
                response_deserializer=GetMessageClass(method.output_type).FromString,
            )
            setattr(self, method.name, remote_method)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the service {_SERVICE.full_name} has no method {name!r}")


def servicer_handler(servicer: object) -> grpc.GenericRpcHandler:
    """Returns the handler that a gRPC server needs: `server.add_generic_rpc_handlers((handler,))`.

    Args:
      servicer: Object with a method `(request, context) -> reply` for each method of the service, of the same name.
    """
    handlers = {
        method.name: grpc.unary_unary_rpc_method_handler(
            getattr(servicer, method.name),
            request_deserializer=GetMessageClass(method.input_type).FromString,
            response_serializer=GetMessageClass(method.output_type).SerializeToString,
        )
        for method in _SERVICE.methods
    }
    return grpc.method_handlers_generic_handler(_SERVICE.full_name, handlers)
