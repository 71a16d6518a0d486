/** Reads the events of a stream while the server writes it. */

/** Yield each event's name and values; comments, which only keep the connection open, are skipped. */
export async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split(/\r?\n\r?\n/);
      rest = blocks.pop();
      yield* blocks.map(eventIn).filter((event) => event !== null);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function eventIn(block) {
  const lines = block.split(/\r?\n/);
  const of = (field) => lines.filter((line) => line.startsWith(field)).map((line) => line.slice(field.length).trimStart());
  const data = of("data:").join("\n");
  return data ? { name: of("event:")[0] ?? "message", values: JSON.parse(data) } : null;
}
