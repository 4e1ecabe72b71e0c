"""Work that nobody asks for: each module is one supervised loop, `async def run(plane)`."""
