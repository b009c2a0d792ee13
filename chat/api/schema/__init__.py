"""The API's description, as OpenAPI 3.1: what each operation takes and answers, in words and by example."""
