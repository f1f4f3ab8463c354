//! One request, sent repeatedly.

use http1::{Error, Fed, HeadCache, Response, ResponseReader};
use record::{ErrorClass, StatusSet};

use super::{Exchange, ExchangeContext, Judgement};
use crate::{
    recorder::{InFlight, ReceiveTime},
    request::RequestBytes,
    wire::SlotId,
};

/// One request for all connections.
#[derive(Debug)]
pub struct Fixed {
    request: RequestBytes,
    expect: StatusSet,
    is_head_request: bool,
    head_cache: HeadCache,
}

impl Exchange for Fixed {
    fn new(context: &ExchangeContext<'_>) -> Self {
        Self {
            request: RequestBytes::new(context.plan),
            expect: context.plan.expect.clone(),
            is_head_request: context.plan.request.method == "HEAD",
            head_cache: HeadCache::default(),
        }
    }

    #[inline]
    fn bytes(&mut self, _: SlotId, unsent: usize, sent: usize) -> &[u8] {
        self.request.rest(unsent.min(self.request.copies()), sent)
    }

    #[inline]
    fn length(&self, _: SlotId) -> usize {
        self.request.length()
    }

    #[inline]
    fn feed(&mut self, _: SlotId, reader: &mut ResponseReader, bytes: &[u8]) -> Result<Fed<Response>, Error> {
        reader.feed_cached(bytes, self.is_head_request, &mut self.head_cache)
    }

    #[inline]
    fn answered(&mut self, _: SlotId, _: &InFlight, response: &Response, _: ReceiveTime) -> Judgement {
        if self.expect.contains(response.status) {
            Judgement::Good
        } else {
            Judgement::Failed(ErrorClass::Status)
        }
    }
}
