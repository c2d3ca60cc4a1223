//! The library's service as one of tonic's: prepared bytes go out as they are.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Buf, BufMut, Bytes};
use cbt::{Event, Metadata, StreamOptions};
use tokio::{sync::mpsc, task::spawn_blocking};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    body::Body,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::Service,
    metadata::{MetadataKey, MetadataMap},
    server::{Grpc, NamedService, ServerStreamingService},
    Code, Request, Response, Status,
};

// [codec]
/// Messages are bytes already.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;
    fn encoder(&mut self) -> Raw {
        Raw
    }
    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;
    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;
    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
// [/codec]

fn status_of(error: &cbt::Error) -> Status {
    Status::new(Code::from_i32(error.code() as i32), error.message())
}

fn metadata_of(entries: Metadata) -> MetadataMap {
    let mut map = MetadataMap::new();
    for (key, value) in entries {
        if let (Ok(key), Ok(value)) = (MetadataKey::from_bytes(key.as_bytes()), value.parse()) {
            map.insert(key, value);
        }
    }
    map
}

/// One call: a thread makes its messages, two ahead of the client.
#[derive(Clone)]
struct Call {
    service: Arc<cbt::Service>,
    method: String,
}

impl Call {
    fn run(
        &self,
        request: &[u8],
        metadata: impl FnOnce(MetadataMap),
        out: &mpsc::Sender<Result<Bytes, Status>>,
    ) -> cbt::Result<()> {
        let mut stream = self
            .service
            .open(&self.method, request, &StreamOptions::default())?;
        let mut metadata = Some(metadata);
        loop {
            match stream.next()? {
                Event::Message(_) => {}
                Event::Yield => continue,
                Event::End => break,
            }
            // Without a copy: tonic sends it later.
            let message = Bytes::from_owner(stream.keep()?);
            if let Some(send) = metadata.take() {
                send(metadata_of(stream.initial_metadata()?));
            }
            if out.blocking_send(Ok(message)).is_err() {
                return Ok(()); // the client has gone
            }
        }
        // OK, with the proof of completeness.
        let trailing = metadata_of(stream.trailing_metadata()?);
        let _ = out.blocking_send(Err(Status::with_metadata(Code::Ok, "", trailing)));
        Ok(())
    }
}

impl ServerStreamingService<Bytes> for Call {
    type Response = Bytes;
    type ResponseStream = ReceiverStream<Result<Bytes, Status>>;
    type Future =
        Pin<Box<dyn Future<Output = Result<Response<Self::ResponseStream>, Status>> + Send>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let (out, messages) = mpsc::channel(2);
        let (send, known) = tokio::sync::oneshot::channel();
        let call = self.clone();
        spawn_blocking(move || {
            let metadata = |metadata| drop(send.send(metadata));
            if let Err(error) = call.run(request.get_ref(), metadata, &out) {
                let _ = out.blocking_send(Err(status_of(&error)));
            }
        });
        Box::pin(async move {
            let mut response = Response::new(ReceiverStream::new(messages));
            // Before the first message; a call that failed before it has none.
            if let Ok(metadata) = known.await {
                *response.metadata_mut() = metadata;
            }
            Ok(response)
        })
    }
}

// [register]
/// A service for `tonic::transport::Server::add_service()`. tonic routes by the service's name, so
/// there is one for each: `SnapshotMetadata` and `Identity`.
#[derive(Clone)]
pub struct SnapshotMetadata(pub Arc<cbt::Service>);
#[derive(Clone)]
pub struct Identity(pub Arc<cbt::Service>);

impl NamedService for SnapshotMetadata {
    const NAME: &'static str = "csi.v1.SnapshotMetadata";
}
impl NamedService for Identity {
    const NAME: &'static str = "csi.v1.Identity";
}

type Answer = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

fn answer(service: &Arc<cbt::Service>, request: http::Request<Body>) -> Answer {
    let call = Call {
        service: service.clone(),
        method: request.uri().path().to_owned(),
    };
    // A unary method is a stream of one message.
    Box::pin(async move { Ok(Grpc::new(Raw).server_streaming(call, request).await) })
}
// [/register]

macro_rules! service {
    ($name:ident) => {
        impl Service<http::Request<Body>> for $name {
            type Response = http::Response<Body>;
            type Error = Infallible;
            type Future = Answer;
            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
                Poll::Ready(Ok(()))
            }
            fn call(&mut self, request: http::Request<Body>) -> Answer {
                answer(&self.0, request)
            }
        }
    };
}
service!(SnapshotMetadata);
service!(Identity);
