#!/usr/bin/python3
"""Submits a job, waits until it trains, saves, holds, resumes and cancels it. Usage: client.py HOST:PORT JOB.json"""
import sys
import uuid

import grpc
from google.protobuf import json_format
from megatrain.v1 import api_pb2 as api, api_pb2_grpc as rpc, job_pb2, types_pb2

channel = grpc.insecure_channel(sys.argv[1])
jobs, saves, operations = rpc.JobsStub(channel), rpc.CheckpointsStub(channel), rpc.OperationsStub(channel)
spec = json_format.Parse(open(sys.argv[2]).read(), job_pb2.JobSpec())
job = api.JobRef(uid=jobs.Submit(api.SubmitRequest(spec=spec, request_id=str(uuid.uuid4())), timeout=60).job.uid)
if not any(update.state == types_pb2.RUNNING for update in jobs.Watch(api.GetJobRequest(job=job))):
    sys.exit("the job ended before it trained: " + jobs.Get(api.GetJobRequest(job=job), timeout=60).message)
for call, request in ((saves.Trigger, api.TriggerCheckpointRequest), (jobs.Pause, api.PauseRequest),
                      (jobs.Resume, api.ResumeRequest), (jobs.Cancel, api.CancelRequest)):
    operation = call(request(job=job, request_id=str(uuid.uuid4())), timeout=60)
    operation = operations.Wait(api.WaitOperationRequest(name=operation.name, timeout_ms=300000), timeout=310)
    print(operation.verb, operation.step, operation.error.message or operation.result)
