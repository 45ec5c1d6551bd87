//! No answer leaves before what it was made from is durable.
//!
//! A call whose transaction was committed knows that by then. One that read and refused, or found that it
//! is so already, may have read what another transaction is still writing; where that fails, the answer
//! would be a lie. In one place for all calls, so that none can forget it.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use tonic::{
    body::Body,
    codegen::{Service as TowerService, http},
};
use tower::Layer;

use super::status::status;
use crate::service::Service;

/// Makes calls wait until what they answer is settled.
#[derive(Clone)]
pub(super) struct SettledLayer(pub(super) Service);

impl<S> Layer<S> for SettledLayer {
    type Service = Settled<S>;

    fn layer(&self, inner: S) -> Settled<S> {
        Settled {
            inner,
            service: self.0.clone(),
        }
    }
}

#[derive(Clone)]
pub(super) struct Settled<S> {
    inner: S,
    service: Service,
}

impl<S> TowerService<http::Request<Body>> for Settled<S>
where
    S: TowerService<http::Request<Body>, Response = http::Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.service.clone();
        let mark = service.mark();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            Ok(match service.settle_reads(mark).await {
                Ok(()) => answer,
                Err(error) => status(&error).into_http(),
            })
        })
    }
}
