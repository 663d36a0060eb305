"""Forward passes of torch models: module hooks, function calls, attention."""
