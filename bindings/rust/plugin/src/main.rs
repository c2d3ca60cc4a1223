//! A storage plugin with tonic: `plugin SOCKET`.

mod service;
mod storage;

use std::{env, error::Error, sync::Arc};

use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let socket = env::args_os().nth(1).ok_or("usage: plugin SOCKET")?;
    let options = cbt::ServiceOptions {
        plugin_name: Some("block.example.com".into()),
        ..Default::default()
    };
    let service = Arc::new(cbt::Service::new(storage::open, &options)?);
    tonic::transport::Server::builder()
        .add_service(service::SnapshotMetadata(service.clone()))
        .add_service(service::Identity(service))
        .serve_with_incoming(UnixListenerStream::new(UnixListener::bind(socket)?))
        .await?;
    Ok(())
}
